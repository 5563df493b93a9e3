"""A travel desk: trips are found, held, paid for and ticketed, however long the traveller and the payment take."""
