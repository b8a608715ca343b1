-- record_changes keeps the rows of each action of a MERGE.
select fencing.record_changes('inventory', array['stock']);
begin;
select fencing.enter(array['inventory/sku-1', 'inventory/sku-2', 'inventory/sku-m'], 5);
merge into inventory i using (values ('sku-1', 1), ('sku-2', 0), ('sku-m', 7)) as v (sku, n) on i.sku = v.sku
  when matched and v.n = 0 then delete when matched then update set stock = i.stock - v.n
  when not matched then insert (sku, stock, initial_stock) values (v.sku, v.n, v.n);
commit;
select operation, row_key, old, new, resource, fencing_token from fencing.row_change order by row_key;
