-- A new epoch is higher than all that were drawn or seen, and below 2^21. A draw that is rolled back has no effect.
\connect - test_gateway
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0);
select * from fencing.draw_epoch('n1', 'life-1', true, 0);
select * from fencing.draw_epoch('n1', 'life-2', true, 0);
select * from fencing.draw_epoch('n2', 'life-3', true, 7);
select * from fencing.draw_epoch('n1', 'life-4', true, 3);
select * from fencing.draw_epoch('n3', 'life-5', true, null);
begin;
select * from fencing.draw_epoch('n4', 'life-6', true, 0);
rollback;
select * from fencing.draw_epoch('n4', 'life-7', true, 0);
select * from fencing.draw_epoch('n1', 'life-8', true, 2097151);
select * from fencing.draw_epoch('n1', 'life-9', true, 2097150);
select * from fencing.draw_epoch('n1', 'life-10', true, -1);
select * from fencing.draw_epoch('n1', 'life-11', true, 2097150);
select * from fencing.draw_epoch('n1', 'life-12', true, 0);
select name, epoch from fencing.node order by name;
