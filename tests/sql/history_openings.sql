-- What lets rows of the history be changed or takes some away is an event of the history itself.
select fencing.make_history_partition('2026-08-03');
insert into fencing.history (at, event) values ('2026-08-04', 'lease_granted');
begin;
alter table fencing.history_20260803 disable trigger history_append_only;
update fencing.history set owner = 'another' where at = '2026-08-04';
alter table fencing.history_20260803 enable always trigger history_append_only;
commit;
alter table fencing.row_change_20260803 enable trigger history_append_only;
alter table fencing.row_change_20260803 enable always trigger history_append_only;
begin;
drop trigger history_no_truncate on fencing.history_20260803;
rollback;
alter table fencing.history_digest disable trigger all;
alter table fencing.history_digest enable always trigger history_append_only;
alter table fencing.history_digest enable always trigger history_no_truncate;
alter table fencing.row_change detach partition fencing.row_change_20260803;
drop table fencing.row_change_20260803;
drop table fencing.history_20260803;
-- other changes of the same tables are none
create index on fencing.history (last_fencing_token);
select fencing.make_history_partition('2026-08-10');
alter table fencing.history_20260810 set (autovacuum_enabled = on);
select principal, detail->>'action' as action, detail->>'relation' as relation from fencing.history
  where event = 'guard_changed' order by id;
begin;
drop trigger history_no_truncate on fencing.history_20260810;
select detail->>'action' as action, detail->>'relation' as relation from fencing.history
  where event = 'guard_changed' order by id desc limit 1;
rollback;
-- digests can be neither dropped nor changed by a setting
drop table fencing.history_digest;
select fencing.append_digest(1, '{}', 'signature', 'salt', 'erasable');
set session_replication_role = replica;
delete from fencing.history_digest;
