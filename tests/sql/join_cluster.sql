-- The first gateway fixes the cluster's configuration; the error for another one that differs names the line.
\connect - test_gateway
select * from fencing.draw_epoch('n1', 0);
select fencing.join_cluster('{n3,n1,n2}', 2, 30000, 65536);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536);
select fencing.join_cluster('{n1,n2,n4}', 2, 30000, 65536);
select fencing.join_cluster('{n1,n2}', 2, 30000, 65536);
select fencing.join_cluster('{n1,n2,n3}', 3, 30000, 65536);
select fencing.join_cluster('{n1,n2,n3}', 2, 60000, 65536);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 1);
select fencing.join_cluster(null, 2, 30000, null);
select * from fencing.cluster;
update fencing.cluster set epoch = 0;
-- the first gateway that has a bound of answers fixes it; one that has none is not compared
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 800);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536);
-- the cell, which is 0 for gateways that know none
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 2);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, null);
select cell from fencing.cluster;
