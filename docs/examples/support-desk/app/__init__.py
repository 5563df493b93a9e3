"""A support desk: customers ask for refunds, staff decide."""
