-- The first gateway fixes the cluster's configuration; the error for another one that differs names the line.
\connect - test_gateway
select * from fencing.draw_epoch('n1', 'a life', true, 0);
select fencing.join_cluster('{n3,n1,n2}', 2, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n4}', 2, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2}', 2, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n3}', 3, 30000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 60000, 65536, 500, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 1, 500, 0);
select fencing.join_cluster(null, 2, 30000, null, 500, 0);
select * from fencing.cluster;
update fencing.cluster set epoch = 0;
-- the bound of answers
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 800, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 0, 0);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, null, 0);
-- the cell
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 2);
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, null);
select cell from fencing.cluster;
