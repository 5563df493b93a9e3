.PHONY: run test format

run:
	python3 dev.py run

test:
	python3 dev.py test

format:
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
