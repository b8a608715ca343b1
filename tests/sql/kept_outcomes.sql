-- Keys of writes: claimed by one transaction at a time, kept when it commits, found by later ones,
-- free again after they expire.
\connect - test_gateway
\set a 'decode(repeat(''aa'', 32), ''hex'')'
\set b 'decode(repeat(''bb'', 32), ''hex'')'
select * from fencing.find_outcomes('{p}', '{k1}', array[:a]);
begin;
select * from fencing.claim_keys('{p,p,p,q}', '{k1,k2,k1,k1}', array[:a, :a, :a, :a]);  -- k1 of p twice: once is enough
select fencing.keep_outcomes('{p,q}', '{k1,k1}', array[:a, :a], '{one,other}', 60000);
commit;
select * from fencing.find_outcomes('{p}', '{k1}', array[:a]);
select * from fencing.find_outcomes('{p}', '{k1}', array[:b]);
select * from fencing.claim_keys('{p,p,p,q}', '{k1,k1,k2,k1}', array[:a, :b, :a, :a]);
-- a refusal: the changes of the write are rolled back, its key and its outcome are kept
begin;
select state from fencing.claim_keys('{p}', '{k3}', array[:a]);
savepoint claimed;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
update inventory set stock = stock - 100 where sku = 'sku-1';
rollback to savepoint claimed;
select fencing.record_events('[{"event": "write_failed", "resource": "inventory/sku-1", "principal": "p"}]');
select fencing.keep_outcomes('{p}', '{k3}', array[:a], '{refused}', 60000);
commit;
select outcome from fencing.find_outcomes('{p}', '{k3}', array[:a]);
select event, resource from fencing.history order by id;
-- rolled back: the key is new again
begin;
select fencing.keep_outcomes('{p}', '{k4}', array[:a], '{lost}', 60000);
rollback;
select state from fencing.claim_keys('{p}', '{k4}', array[:a]);
-- kept already: nothing is overwritten, claimed or not
select fencing.keep_outcomes('{p}', '{k1}', array[:b], '{two}', 60000);
-- expired: the key is free, whether it was deleted or not
select fencing.keep_outcomes('{p,p,p}', '{old1,old2,old3}', array[:a, :a, :a], '{x,y,z}', -1000);
select * from fencing.find_outcomes('{p}', '{old1}', array[:a]);
select state from fencing.claim_keys('{p}', '{old1}', array[:b]);
select fencing.keep_outcomes('{p}', '{old1}', array[:b], '{again}', 60000);
select * from fencing.find_outcomes('{p}', '{old1}', array[:b]);
select fencing.forget_outcomes(1);
select fencing.forget_outcomes(10);
select fencing.forget_outcomes(10);
-- bad arguments
select fencing.claim_keys('{p}', '{k1,k2}', array[:a]);
select fencing.claim_keys('{p}', array[repeat('k', 65)], array[:a]);
select fencing.claim_keys('{p}', '{k}', array['\xaa'::bytea]);
select fencing.claim_keys(null, '{k}', array[:a]);
select fencing.keep_outcomes('{p}', '{k5}', array[:a], '{NULL}', 60000);
-- no access except by the functions, and none for other roles
select * from fencing.kept_outcome;
delete from fencing.kept_outcome;
\connect - test_app
select fencing.find_outcomes('{p}', '{k1}', array[decode(repeat('aa', 32), 'hex')]);
select fencing.claim_keys('{p}', '{k1}', array[decode(repeat('aa', 32), 'hex')]);
select fencing.forget_outcomes(10);
select fencing.seal_writes('{a}', '{1}', '{00000000-0000-0000-0000-000000000001}', '{o}', '{p}', '{t}');
\connect - postgres
select principal, key, left(fingerprint::text, 4) as fingerprint, outcome from fencing.kept_outcome order by 1, 2;
