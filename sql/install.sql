-- Installs the guard with psql:
--
--     psql -X -v ON_ERROR_STOP=1 -d DATABASE -f sql/install.sql
--
-- It runs in one transaction and may be run again. The files below are plain SQL,
-- so that `fencegate migrate` can send the same files, in the order of their names, without psql.
-- Only this file uses psql's commands.
\set ON_ERROR_STOP on
begin;
set local client_min_messages = warning;
\ir migrations/0000_begin.sql
\ir schema/010_roles.sql
\ir schema/020_schema.sql
\ir schema/025_storage_generation.sql
\ir schema/030_guard.sql
\ir schema/040_history.sql
\ir schema/045_row_change.sql
\ir schema/050_rotation.sql
\ir schema/055_history_digest.sql
\ir schema/060_cluster.sql
\ir schema/065_generation_change.sql
\ir schema/070_refusal.sql
\ir schema/075_proof.sql
\ir schema/080_enter.sql
\ir schema/090_begin_write.sql
\ir schema/095_kept_outcomes.sql
\ir schema/100_fences.sql
\ir schema/105_seal.sql
\ir schema/107_code_of_others.sql
\ir schema/110_protect.sql
\ir schema/115_record_changes.sql
\ir schema/116_recorded_tables.sql
\ir schema/117_erase.sql
\ir schema/120_checks.sql
\ir schema/122_guard_changes.sql
\ir schema/125_openings.sql
\ir schema/130_expose.sql
\ir schema/135_shared_updates.sql
\ir schema/140_api_catalog.sql
\ir schema/145_privileges.sql
\ir schema/150_recorder.sql
\ir schema/153_installed_objects.sql
\ir schema/155_guard_faults.sql
\ir schema/157_guard_state.sql
\ir schema/158_resource_at.sql
\ir schema/900_grants.sql
commit;
