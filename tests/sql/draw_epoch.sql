-- A new epoch is higher than all that were drawn or seen, and below 2^21. A draw that is rolled back has no effect.
\connect - test_gateway
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536);
select * from fencing.draw_epoch('n1', 0);
select * from fencing.draw_epoch('n1', 0);
select * from fencing.draw_epoch('n2', 7);
select * from fencing.draw_epoch('n1', 3);
select * from fencing.draw_epoch('n3', null);
begin;
select * from fencing.draw_epoch('n4', 0);
rollback;
select * from fencing.draw_epoch('n4', 0);
select * from fencing.draw_epoch('n1', 2097151);
select * from fencing.draw_epoch('n1', 2097150);
select * from fencing.draw_epoch('n1', -1);
select * from fencing.draw_epoch('n1', 2097150);
select * from fencing.draw_epoch('n1', 0);
select name, epoch from fencing.node order by name;
