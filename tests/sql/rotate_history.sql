-- Partitions are created in advance and dropped when all their rows are old;
-- rows of the default partition are moved, not lost.
insert into fencing.history (at, event, owner) values (now() - interval '40 days', 'lease_granted', 'old'),
  (now() - interval '20 days', 'lease_granted', 'younger'),
  (now() + interval '90 days', 'lease_granted', 'ahead'), (now(), 'lease_granted', 'now');
select owner from fencing.history_default order by owner;
select made, dropped from fencing.rotate_history('30 days');
select owner, tableoid::regclass = 'fencing.history_default'::regclass as in_default from fencing.history
  where owner is not null order by owner;
select made, dropped from fencing.rotate_history('30 days');
select made > 0 as made_again, dropped from fencing.rotate_history('10 days');
select owner from fencing.history where owner is not null order by owner;
-- the history says what was moved and dropped
select detail->>'action' as action, detail->>'rows' as rows, count(*) from fencing.history
  where detail->>'action' in ('history_moved', 'history_rotated') group by 1, 2 order by 1, 2;
-- the partition of this week too, whose rows are made while it is missing
do $$
begin
  execute 'drop table fencing.history_' || to_char(date_trunc('week', now(), 'UTC') at time zone 'UTC', 'YYYYMMDD');
end
$$;
insert into fencing.history (event, owner) values ('lease_granted', 'meanwhile');
select fencing.make_history_partition(now());
select count(*) as left_in_default from fencing.history_default;
select owner from fencing.history where at > now() - interval '1 day' and owner is not null order by owner;
-- still append-only, the whole table and each partition
delete from fencing.history;
select count(*) as unguarded from pg_inherits i
 where i.inhparent = 'fencing.history'::regclass
   and 2 <> (select count(*) from pg_trigger t where t.tgrelid = i.inhrelid
       and t.tgname in ('history_append_only', 'history_no_truncate') and t.tgenabled = 'A');
select fencing.rotate_history('0 days');
select fencing.rotate_history(null);
\connect - test_gateway
select fencing.rotate_history('30 days');
