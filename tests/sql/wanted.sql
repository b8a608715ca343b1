-- What a refused write wanted is in the history for tables whose changes are recorded, as row_change would have it.
select fencing.record_changes('inventory', array['sku', 'stock', 'note'], array['note']);
create function wanted() returns jsonb language sql as $$
  select jsonb_build_object('operations', '["update inventory"]'::jsonb, 'wanted', '[
    {"operation": "update", "table": "inventory", "arguments": [
      {"part": "set", "column": "note", "value": "a secret"}, {"part": "set", "column": "price", "value": "9"},
      {"part": "add", "column": "stock", "value": null},
      {"part": "where", "column": "sku", "operator": "eq", "value": "sku-1"}]},
    {"operation": "insert", "table": "order_events", "arguments": [
      {"part": "values", "column": "kind", "value": "not recorded"}]}]'::jsonb) $$;
create view refused as select event, fencing_token as token,
    regexp_replace(detail::text, '"[0-9a-f]{64}"', '"(hash)"') as detail from fencing.history
  where event <> 'guard_changed' order by id;
\connect - test_gateway
-- an accepted write, and the seal of its token, leave it out
select accepted from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', null,
    'p', null, wanted(), true);
select accepted from fencing.begin_write('{inventory/sku-2,inventory/sku-3}', 5,
    '00000000-0000-0000-0000-000000000002', null, 'p', null, wanted(), false);
-- one that the fence refuses, and one that fails
select accepted from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000003', null,
    'p', null, wanted(), false);
select fencing.record_events(jsonb_build_array(jsonb_build_object('event', 'write_failed',
    'detail', wanted() - 'operations')));
\connect - postgres
select * from refused;
select detail -> 'wanted' -> 0 -> 'arguments' -> 0 -> 'value' = fencing.masked_value('a secret') as found
  from fencing.history where event = 'write_failed';
-- a masked column that was renamed is not shown under its other name, nor is anything of a table without the setting
alter table inventory rename note to remark;
select fencing.masked_wanted('{"a": 1, "wanted": [{"table": "inventory", "arguments": [
  {"column": "remark", "value": "s"}]}]}');
alter table inventory rename remark to note;
select fencing.stop_recording('inventory');
select fencing.masked_wanted(wanted());
select fencing.masked_wanted(null);
