-- The changes of rows of tables for which record_changes() was called (116_recorded_tables.sql).
-- Partitioned, retained and protected as the history is.

create sequence if not exists fencing.row_change_id_seq as bigint;
comment on sequence fencing.row_change_id_seq is 'Numbers the rows of row_change over all partitions.';

create table if not exists fencing.row_change (
  id            bigint not null default nextval('fencing.row_change_id_seq'::regclass),
  at            timestamptz not null default clock_timestamp(),
  relation      text not null,
  operation     text not null check (operation in ('insert', 'update', 'delete', 'truncate')),
  row_key       jsonb,
  old           jsonb,
  new           jsonb,
  resource      text collate "C",
  fencing_token bigint,
  write_id      uuid,
  principal     text,
  direct        boolean not null,
  application   text
) partition by range (at);
comment on table fencing.row_change is
  'What changed: one row for each changed row of a table for which record_changes() was called, '
  'committed together with the change. Update, delete and truncate are refused for everyone; '
  'rotate_history() drops whole partitions.';
comment on column fencing.row_change.id is 'From one sequence: the order in which rows reached this table.';
comment on column fencing.row_change.at is
  'When it was recorded, by the server''s clock. The partition key, and with id the order of GET /v1/changes.';
comment on column fencing.row_change.relation is
  'The table''s name at that time, with its schema; of a partition that of the partitioned table.';
comment on column fencing.row_change.operation is
  'insert, update, delete, or truncate (of the table or one partition; without the rows). '
  'An update that gives a row another key or another resource is a delete and an insert.';
comment on column fencing.row_change.row_key is
  'The row''s primary key: of each column the value, in the form of old and new. Null: the table has none any more.';
comment on column fencing.row_change.old is
  'The values before: of an update of the columns that changed, of a delete of all recorded columns. Of each column '
  'PostgreSQL''s text of the value, or null; {"masked": "..."}: its keyed hash; '
  '{"left_out_bytes": n, "sha256": "..."}: its text has more than 8 KiB.';
comment on column fencing.row_change.new is 'The values after, in the same form.';
comment on column fencing.row_change.resource is
  'The row''s resource; null if the expression gave none (mode observe), or for truncate.';
comment on column fencing.row_change.fencing_token is
  'The token with which the transaction entered the resource; null if it did not.';
comment on column fencing.row_change.write_id is 'The gateway''s write, as in the history; null for direct SQL.';
comment on column fencing.row_change.principal is
  'The gateway''s authenticated caller, or session_user for direct SQL.';
comment on column fencing.row_change.direct is 'Whether direct SQL made the change, not a write of a gateway.';
comment on column fencing.row_change.application is 'The application_name of direct SQL; null for gateways.';

-- As those of the history, and a small one on id for digests. Of a key the hash is indexed, because a key may be longer
-- than a B-tree takes; a hash index gets slower with each change of one row.
do $$
declare
  item record;
  target text;
begin
  for item in
    select * from (values
      ('row_change_at_id_idx', '(at, id)'),
      ('row_change_id_idx', 'using brin (id) with (autosummarize = on)'),
      ('row_change_resource_at_idx', '(resource, at, id)'),
      ('row_change_write_id_idx', '(write_id) where write_id is not null'),
      ('row_change_key_idx', '(jsonb_hash_extended(row_key, 0), at, id)'))
      as t (name, definition)
  loop
    if pg_catalog.to_regclass('fencing.' || item.name) is null then
      execute pg_catalog.format('create %s index %I on fencing.row_change %s',
          case item.name when 'row_change_at_id_idx' then 'unique' else '' end, item.name, item.definition);
    end if;
  end loop;
  if to_regclass('fencing.row_change_default') is null then
    create table fencing.row_change_default partition of fencing.row_change default;
    create trigger history_append_only before update or delete on fencing.row_change
      for each row execute function fencing.refuse_history_change();
    foreach target in array array['fencing.row_change', 'fencing.row_change_default'] loop
      execute format('alter table %s enable always trigger history_append_only', target);
      execute format('create trigger history_no_truncate before truncate on %s for each statement '
          'execute function fencing.refuse_history_change()', target);
      execute format('alter table %s enable always trigger history_no_truncate', target);
    end loop;
  end if;
end
$$;
comment on table fencing.row_change_default is
  'Holds rows for whose time there is no partition, as history_default does.';
