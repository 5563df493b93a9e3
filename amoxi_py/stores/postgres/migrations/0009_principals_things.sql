-- What is a principal's own, or names one, is found without reading what is everybody's.

CREATE INDEX file_principal ON @file (principal, key);
CREATE INDEX approval_decided_by ON @approval (decided_by, run, turn, n) WHERE decided_by IS NOT NULL;
