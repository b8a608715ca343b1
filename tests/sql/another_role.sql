-- The privilege to write the table does not include enter.
-- What one role entered stays open to the transaction after a change of the role.
create role case_clerk;
grant select, insert, update, delete on inventory to case_clerk;
grant case_clerk to test_app;
set role case_clerk;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = 0 where sku = 'sku-1';
reset role;
grant usage on schema fencing to case_clerk;
set role case_clerk;
select fencing.enter('inventory/sku-1', 5);
update fencing.guard set last_fencing_token = 1;
reset role;
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
set local role case_clerk;
update inventory set stock = stock - 1 where sku = 'sku-1';
update inventory set stock = 0 where sku = 'sku-2';
rollback;
\connect - postgres
drop owned by case_clerk;
drop role case_clerk;
