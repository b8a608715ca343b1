-- Each change of the guard is in the history, with who made it; it commits with the change.
create table app_item (id integer primary key, note text);
create function app_sum(a integer) returns integer language sql stable as 'select a';

select fencing.protect('app_item', $$'item/' || id$$, 'observe');
select fencing.protect('app_item', $$'item/' || id$$);
select fencing.expose_table('app_item', 'item', '{select,update}', '{id,note}');
select fencing.expose_function('app_sum(integer)');
select fencing.hide('item');
select fencing.hide('app_sum');
select fencing.add_proof_key(sha256('a key'), name => 'first');
select fencing.require_proof(true);
select fencing.require_proof(false);
select fencing.retire_proof_key('first');
select fencing.retire_proof_key('first');
select fencing.unprotect('app_item');
begin;
select fencing.protect('app_item', $$'item/' || id$$);
rollback;
select fencing.protect('app_item', $$'item/' || missing$$);

-- Nothing of a key is recorded.
select event, principal, resource, detail - 'expires_at' as detail from fencing.history order by id;

-- A superuser may disable a check: the history says who did it, and who enabled it again.
select max(id) as seen from fencing.history \gset
select fencing.protect('app_item', $$'item/' || id$$);
alter table app_item disable trigger all;
alter table app_item add column other text;
select fencing.protect('app_item', $$'item/' || id$$);
select principal, detail ->> 'action' as action, detail ->> 'relation' as relation, detail ->> 'command' as command,
  jsonb_array_length(detail -> 'faults') as faults
  from fencing.history where id > :seen order by id;
select fencing.watch_guard();

-- Faults that no command of this database made known: a gateway finds each once, and says since when it may be there.
select max(id) as seen from fencing.history \gset
begin;
set local session_replication_role = replica;
alter event trigger fencing_refuse_openings disable;
alter table app_item disable trigger all;
alter event trigger fencing_refuse_openings enable always;
commit;
set role fencing_gateway;
select count(*) > 1 as found from fencing.watch_guard();
select count(*) > 1 as found from fencing.watch_guard();
reset role;
alter event trigger fencing_refuse_openings disable;
select format('alter table app_item enable always trigger %I', t.tgname) from pg_trigger t
  where t.tgrelid = 'app_item'::regclass \gexec
alter event trigger fencing_refuse_openings enable always;
set role fencing_gateway;
select count(*) from fencing.watch_guard();
reset role;
select principal, detail ->> 'action' as action, detail ->> 'relation' as relation,
  (detail ->> 'not_before')::timestamptz < at as earlier, jsonb_array_length(detail -> 'faults') as faults
  from fencing.history where id > :seen order by id;

-- A transaction that can't write gets the faults, and records nothing.
begin read only;
select fencing.watch_guard();
commit;
