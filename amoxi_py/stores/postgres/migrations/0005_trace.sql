-- The trace that a run belongs to, as W3C Trace Context writes it; NULL where nobody traces.

ALTER TABLE @run ADD COLUMN trace text COLLATE "C";
