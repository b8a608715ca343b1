-- Digests are added one after the other by one transaction at a time; nobody changes or removes one.
\connect - test_gateway
select fencing.begin_digest();
select fencing.append_digest(1, '{}', 'signature', 'salt', 'erasable');
select fencing.append_digest(1, '{}', 'signature', 'salt', 'erasable');
select fencing.append_digest(3, '{}', 'signature', 'salt', 'erasable');
select fencing.append_digest(null, '{}', 'signature', 'salt', 'erasable');
select fencing.append_digest(2, repeat('x', 3000000), 'signature', 'salt', 'erasable');
insert into fencing.history_digest (number, entry, signature, salt, erasable_salt) values (2, '{}', '', '', '');
begin;
lock table fencing.history_digest in share mode;
rollback;
select number, entry, signature, salt from fencing.history_digest;
\connect - postgres
update fencing.history_digest set entry = '';
delete from fencing.history_digest;
truncate fencing.history_digest;
\connect - test_auditor
select number from fencing.history_digest;
select fencing.append_digest(2, '{}', 'signature', 'salt', 'erasable');
