-- an orders-like table of mixed types, churned
create table orders(id bigserial primary key, customer int not null, status smallint not null, amount numeric(10,2), created timestamptz not null, updated timestamptz, note text, u uuid);
insert into orders(customer,status,amount,created,updated,note,u)
 select (random()*50000)::int, (random()*5)::int, (random()*1000)::numeric(10,2), '2024-01-01'::timestamptz + g * interval '37 seconds' + random()*interval '20 seconds', null,
  case when random()<0.3 then 'note '||md5(g::text) end, md5(g::text)::uuid from generate_series(1,400000) g;
create index orders_customer on orders(customer);
create index orders_created on orders(created);
create index orders_status on orders(status, created);
create index orders_u on orders(u);
create table events(ts timestamptz not null, device int, kind int, v1 double precision, v2 real, ok bool);
insert into events select '2024-06-01'::timestamptz + g*interval '0.25 s', g%977, (random()*12)::int, 20+5*sin(g/1000.0)+random(), random()*100, random()<0.98 from generate_series(1,800000) g;
create index events_ts on events(ts);
create index events_dev on events(device, ts);
create index events_brin on events using brin(ts);
vacuum analyze orders; vacuum analyze events;
create table ints(a int, b int, c bigint);
insert into ints select g, (random()*1e6)::int, (random()*1e9)::bigint from generate_series(1,600000) g;
create index ints_a on ints(a); create index ints_b on ints(b); create index ints_c on ints(c);
-- churn
create table queue(id bigserial primary key, payload jsonb, state int, at timestamptz default clock_timestamp());
do $$ begin for r in 1..20 loop
 insert into queue(payload,state) select jsonb_build_object('job', (array['mail','resize','index','bill'])[1+(random()*3)::int], 'n', (random()*1e6)::int, 'user', 'user'||(random()*1e4)::int), 0 from generate_series(1,8000);
 update queue set state=1 where state=0 and random()<0.5;
 delete from queue where state=1 and random()<0.7;
 commit; end loop; end $$;
do $$ begin for r in 1..6 loop
 update orders set status=(random()*5)::int, updated=created+random()*interval '3 days' where id % 7 = r;
 delete from orders where id % 211 = r;
 insert into orders(customer,status,amount,created,u) select (random()*50000)::int, 0, (random()*1000)::numeric(10,2), '2024-08-01'::timestamptz + (g+r*1000)*interval '11 s', gen_random_uuid() from generate_series(1,10000) g;
 update ints set b=(random()*1e6)::int where a % 13 = r;
 commit; end loop; end $$;
vacuum orders; vacuum ints; vacuum queue;
update orders set status = 3 where id % 17 = 0;
update events set v1 = v1+1 where device = 13;
delete from ints where a % 29 = 5;
