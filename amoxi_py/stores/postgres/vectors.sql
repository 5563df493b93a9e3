-- Statements about vectors. What stands in braces is written into them, because an index of one embedder's vectors is only
-- found by a statement that names the embedder; `{type}` is pgvector's type with its size, `{plain}` the type alone.

-- name: look
SELECT e.extversion, n.nspname, n.nspname IS NOT NULL AND i.indisvalid, i.indexrelid IS NOT NULL,
    EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.index_relid = i.indexrelid)
FROM (SELECT :schema::text AS schema, :index::text AS name) AS wanted
LEFT JOIN pg_extension AS e ON e.extname = 'vector'
LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace
LEFT JOIN pg_namespace AS s ON s.nspname = wanted.schema
LEFT JOIN pg_class AS c ON c.relnamespace = s.oid AND c.relname = wanted.name
LEFT JOIN pg_index AS i ON i.indexrelid = c.oid

-- name: make_index
CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON @passage_vector
USING hnsw ((vector::{type}) {plain}_cosine_ops) WITH (m = 24, ef_construction = 128)
WHERE embedder = {embedder} AND cardinality(vector) = {dimensions}

-- name: drop_index
DROP INDEX CONCURRENTLY IF EXISTS {schema}.{index}

-- name: widen
-- No sort: it would be of all vectors of the embedder.
SELECT set_config('hnsw.ef_search', :breadth::text, true), set_config('hnsw.iterative_scan', 'strict_order', true),
    set_config('enable_sort', 'off', true)

-- name: through_all
-- The sum keeps it from the index of all spaces.
SELECT passage FROM (
    SELECT passage, vector::{type} OPERATOR({of}.<=>) :vector::real[]::{type} AS distance
    FROM @passage_vector WHERE space = :space AND embedder = {embedder} AND cardinality(vector) = {dimensions}
) AS near
WHERE distance < 1 - :slight::float8
ORDER BY distance + 0, passage LIMIT :limit

-- name: along_index
-- The sum keeps it from the index of the space alone.
SELECT passage, distance < 1 - :slight::float8 FROM (
    SELECT passage, vector::{type} OPERATOR({of}.<=>) :vector::real[]::{type} AS distance
    FROM @passage_vector
    WHERE embedder = {embedder} AND cardinality(vector) = {dimensions} AND space + 0 = :space
    ORDER BY vector::{type} OPERATOR({of}.<=>) :vector::real[]::{type} LIMIT :limit
) AS near
