-- Nobody can change or delete rows of the history, not even a superuser, also not in its partitions.
select fencing.record_events('[{"event": "lease_granted", "resource": "a/b", "fencing_token": 1}]');
update fencing.history set owner = 'me';
delete from fencing.history;
truncate fencing.history;
truncate fencing.history_default;
select 'delete from fencing.' || c.relname as statement, 'truncate fencing.' || c.relname as other
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'fencing.history'::regclass and c.relname <> 'history_default' order by c.relname limit 1 \gset
\set ECHO none
\set QUIET on
:statement;
:other;
\set ECHO all
insert into fencing.history (event) values ('something_else');
select count(*) from fencing.history;
\connect - test_gateway
insert into fencing.history (event) values ('lease_granted');
delete from fencing.history;
