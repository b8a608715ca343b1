-- Version 4. Changes to objects of version 3 that `create or replace` and `create table if not exists` cannot make;
-- does nothing in a database that is new or already has version 4.

-- Plainer names for two domain constraints, a domain and a function.
do $$
begin
  if pg_catalog.to_regtype('fencing.event_word') is not null then
    alter domain fencing.resource_name rename constraint resource_word to resource_name;
    alter domain fencing.event_word rename constraint event_word to event_type;
    alter domain fencing.event_word rename to event_type;
    drop function fencing.require_words(text[], bigint);
  end if;
end
$$;

-- Settings of the owner, columns of the tables `node` and `protected`, and functions whose arguments changed.
do $$
begin
  if pg_catalog.to_regclass('fencing.schema_version') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 4 then
    -- The bound of answers, which FAST READMISSION needs; the first gateway that knows it writes it.
    alter table fencing.cluster add column if not exists answer_bound_ms bigint check (answer_bound_ms > 0);
    drop function if exists fencing.join_cluster(text[], integer, bigint, integer);
    -- The register records for which life of a node an epoch was drawn, and whether that life synced every write.
    alter table fencing.node add column if not exists life text, add column if not exists synced boolean not null default false;
    alter table fencing.protected add column relation_name text, add column expression_objects text[], add column row_expression text;
    update fencing.protected p
       set relation_name = coalesce((select pg_catalog.format('%I.%I', n.nspname, c.relname) from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                                      where c.oid = p.relation), p.relation::text);  -- with its schema, whatever the search_path is
    alter table fencing.protected alter column relation_name set not null;
    -- The recorder's connection string, with its password, becomes a foreign server and a user mapping: schema/150_recorder.sql makes them.
    delete from fencing.settings where key = 'recorder';
    alter table fencing.settings drop constraint if exists settings_key_check, drop constraint if exists settings_recorder_is_keywords;
    alter table fencing.settings add constraint settings_key_check check (key in ('require_proof', 'history_keep_days_min')),
      add constraint settings_history_keep_days_min_is_days check (key <> 'history_keep_days_min' or value ~ '^[1-9][0-9]{0,4}$');
    drop function if exists fencing.expose_table(regclass, text, text[], text[]);
    drop function if exists fencing.expose_function(regprocedure, text);
    drop function if exists fencing.require_resource_expression(regclass, text);
    drop function if exists fencing.create_check_function(name, text);
    drop function if exists fencing.check_body(text, text, text, text);
    drop function if exists fencing.create_statement_checks(regclass, text, text, name);
    drop function if exists fencing.create_row_checks(regclass, text, text, name);
  end if;
end
$$;

-- Refusals that follow from the lease are no longer kept under an Idempotency-Key: with a newer lease the same request may succeed.
do $$
begin
  if pg_catalog.to_regclass('fencing.kept_outcome') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 4 then
    delete from fencing.kept_outcome where outcome ~ '^\{"refusal":"(stale-fencing-token|resource-not-covered|fencing-required)"';
  end if;
end
$$;
