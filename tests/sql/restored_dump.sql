-- A dump restored into a cluster whose transaction ids start again: an equal id alone opens nothing.
begin;
update fencing.guard set entered_xid = pg_current_xact_id(), entered_at = transaction_timestamp() - interval '1 day'
  where resource = 'inventory/sku-1';
update inventory set stock = 0 where sku = 'sku-1';
rollback;
begin;
update fencing.guard set entered_xid = '7', entered_at = transaction_timestamp() where resource = 'inventory/sku-1';
update inventory set stock = 0 where sku = 'sku-1';
rollback;
