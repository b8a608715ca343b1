-- Settings of every installation's transaction, whatever those of the database are: each statement sees what was committed before it, the texts in these files mean the same, and names are stored and
-- compared as text without quotes where none are needed.

set transaction isolation level read committed;
set local standard_conforming_strings = on;
set local quote_all_identifiers = off;
