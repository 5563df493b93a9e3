-- What the state of a store is made of, in one row; `schema` is its schema's name. No version of PostgreSQL that is
-- still in use lacks anything of it: one that is too old for the store can be told so.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() AS replica,
    current_setting('default_transaction_read_only') = 'on' AS reads_only,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standbys,
    (
        SELECT count(*)::integer
        FROM pg_stat_replication AS standby
        WHERE standby.state IS DISTINCT FROM 'backup'
            AND NOT EXISTS (
                SELECT FROM pg_replication_slots AS slot
                WHERE slot.active_pid = standby.pid AND slot.slot_type = 'logical'
            )
    ) AS standbys,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector_made,
    (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS vector_available,
    current_database()::text AS database,
    namespace.oid IS NOT NULL AS schema_made,
    CASE
        WHEN namespace.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege(namespace.oid, 'CREATE')
    END AS may_create,
    coalesce(has_schema_privilege(namespace.oid, 'USAGE'), true) AS may_look,
    EXISTS (
        SELECT FROM pg_class AS held JOIN pg_attribute ON attrelid = held.oid AND attname = 'number'
        WHERE held.relnamespace = namespace.oid AND held.relname = 'migration'
    ) AS migrated,
    ARRAY(
        SELECT held.relname::text
        FROM pg_class AS held
        WHERE held.relnamespace = namespace.oid AND held.relkind IN ('r', 'p')
        ORDER BY held.relname
    ) AS tables,
    ARRAY(
        SELECT held.relname::text
        FROM pg_class AS held
        WHERE held.relnamespace = namespace.oid AND held.relkind IN ('r', 'p')
            AND NOT (
                has_table_privilege(held.oid, 'SELECT')
                AND (
                    held.relname = 'migration'
                    OR has_table_privilege(held.oid, 'INSERT') AND has_table_privilege(held.oid, 'UPDATE')
                    AND has_table_privilege(held.oid, 'DELETE')
                )
            )
        ORDER BY held.relname
    ) AS closed_tables,
    ARRAY(
        SELECT held.relname::text
        FROM pg_class AS held
        WHERE held.relnamespace = namespace.oid
            AND CASE WHEN held.relkind = 'S' THEN NOT has_sequence_privilege(held.oid, 'SELECT') END
        ORDER BY held.relname
    ) AS closed_sequences,
    ARRAY(
        SELECT held.relname::text
        FROM pg_class AS held
        WHERE held.relnamespace = namespace.oid AND held.relkind IN ('r', 'p')
            AND NOT pg_has_role(held.relowner, 'USAGE')
        ORDER BY held.relname
    ) AS tables_of_others,
    (
        SELECT coalesce(sum(pg_total_relation_size(held.oid)), 0)::bigint
        FROM pg_class AS held
        WHERE held.relnamespace = namespace.oid AND held.relkind = 'r'
    ) AS size
FROM (SELECT (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s) AS oid) AS namespace
