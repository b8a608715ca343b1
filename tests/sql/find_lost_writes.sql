-- Which of the writes that a gateway had reported as committed are missing. A refused write is not there.
\connect - test_gateway
select accepted from fencing.begin_write('{a/1,a/2}', 5, '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
select accepted from fencing.begin_write('{a/1}', 4, '00000000-0000-0000-0000-000000000002', 'o', 'p', 't', null);
\connect - postgres
insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, write_id)
  values (now() - interval '2 hours', 'write_applied', 'a/3', 5, 5, '00000000-0000-0000-0000-000000000003');
\connect - test_gateway
select * from fencing.find_lost_writes('{00000000-0000-0000-0000-000000000009,00000000-0000-0000-0000-000000000001,'
    '00000000-0000-0000-0000-000000000002,00000000-0000-0000-0000-000000000003}');
select * from fencing.find_lost_writes('{}');
select * from fencing.find_lost_writes(null);
