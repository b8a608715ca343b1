-- Only the owner of a table can remove the guard from it: so an application must not own its tables.
\connect - test_app
alter table inventory disable trigger all;
alter table inventory disable trigger fencing_check_update;
alter table inventory enable replica trigger fencing_check_update;
drop trigger fencing_check_update on inventory;
select fencing.unprotect('inventory');
alter table inventory rename to elsewhere;
create trigger mine before update on inventory for each row execute function suppress_redundant_updates_trigger();
\connect - postgres
alter table inventory disable trigger fencing_check_update;
update inventory set stock = 9 where sku = 'sku-1';
delete from inventory where sku = 'sku-3';
-- calling protect() again restores it
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
update inventory set stock = 8 where sku = 'sku-1';
