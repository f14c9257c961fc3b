"""The sections of the report's page, one module each; `pipeline/report/sections.py` lists them."""
