-- How many connections a role can have, and how many all roles have at this moment.
SELECT
    current_user::text AS role,
    (
        SELECT least(
            current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0),
            nullif(role.rolconnlimit, -1),
            nullif(base.datconnlimit, -1)
        )
        FROM pg_roles AS role, pg_database AS base
        WHERE role.rolname = current_user AND base.datname = current_database()
    ) AS places,
    (SELECT coalesce(sum(numbackends), 0)::integer FROM pg_stat_database) AS places_taken
