-- Tables on which one update may execute several writes: protected ones on which an update runs no code
-- but the guard's. Such writes are current together.
create table plain (id text primary key, stock integer);
select fencing.shared_resource_expression('plain') is null as "not protected";
select fencing.protect('plain', $$'plain/' || id$$);
select fencing.shared_resource_expression('plain');
create function touch() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger own_trigger before insert on plain for each row execute function touch();
select fencing.shared_resource_expression('plain') is null as "a trigger";
drop trigger own_trigger on plain;
create rule own_rule as on update to plain do also select 1;
select fencing.shared_resource_expression('plain') is null as "a rule";
drop rule own_rule on plain;
alter table plain enable row level security;
select fencing.shared_resource_expression('plain') is null as "row security";
alter table plain disable row level security;
create table child (plain_id text references plain);
select fencing.shared_resource_expression('plain') as "a foreign key that refuses";
create table cascading (plain_id text references plain on update cascade);
select fencing.shared_resource_expression('plain') is null as "a cascade";
drop table cascading;
select fencing.protect('plain', $$'plain/' || id$$, 'observe');
select fencing.shared_resource_expression('plain') is null as "observed only";
create table parted (id text) partition by list (id);
select fencing.protect('parted', $$'parted/' || id$$);
select fencing.shared_resource_expression('parted') is null as "partitioned";
select name, shared_resource_expression from fencing.api_catalog where kind = 'table' order by name;

\connect - test_gateway
begin;
select resource, accepted from fencing.begin_writes('{inventory/sku-1,inventory/sku-2,inventory/sku-3}', '{1,1,1}',
  '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002,00000000-0000-0000-0000-000000000003}',
  '{a,b,c}', '{p,p,p}', '{NULL,NULL,NULL}', '{NULL,NULL,NULL}',
  '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000003}');
select set_config('fencing.write_id', '00000000-0000-0000-0000-000000000001', true);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
savepoint w;
update inventory set stock = stock - 1 where sku in ('sku-2', 'sku-3');  -- the write on sku-3 is not current
rollback to w;
commit;
select resource, right(write_id::text, 1) as write from fencing.history where event <> 'guard_changed' order by id;
select fencing.begin_writes('{a}', '{1}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}', '{NULL}',
    '{NULL}', '{NULL}');
select fencing.begin_writes('{a}', '{1}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}', '{NULL}',
    '{NULL}', '{}');
