-- One epoch for each life of a node, for any number of calls from any gateway;
-- a life that once did not sync stays marked so.
\connect - test_gateway
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 9);
select epoch, synced from fencing.node where name = 'n1';
select * from fencing.draw_epoch('n2', 'run-a/claim-1', false, 7);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', false, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select epoch, synced from fencing.node where name = 'n1';
select * from fencing.draw_epoch('n1', 'run-a/claim-2', true, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select fencing.note_unsynced('n1');
select fencing.note_unsynced('never drew');
select name, epoch, life, synced from fencing.node order by name;
-- Without a node.
select * from fencing.draw_epoch('n1', '', true, 0);
select * from fencing.draw_epoch(null, null, null, 20);
select name, epoch, life, synced from fencing.node order by name;
begin;
select * from fencing.draw_epoch('n3', 'run-c/claim-1', true, 0);
rollback;
select * from fencing.draw_epoch('n3', 'run-c/claim-1', true, 0);
select * from fencing.draw_epoch('', 'run-c/claim-1', true, 0);
select * from fencing.draw_epoch('n3', 'run-c/claim-1', null, 0);
select * from fencing.draw_epoch('n3', 'run-c/claim-1', true, -1);
select * from fencing.draw_epoch('n3', 'run-c/claim-2', true, 2097150);
select fencing.next_epoch(0);
