"""The store on PostgreSQL: one database that as many servers share as there are."""
