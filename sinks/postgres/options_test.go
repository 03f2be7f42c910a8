package postgres

import "testing"

func TestConfigTarget(t *testing.T) {
	f := func(dsn, table, want string) {
		t.Helper()
		c := Config{DSN: dsn, Table: table}
		if got := c.Target("any"); got != want {
			t.Errorf("%s: got %s, want %s", dsn, got, want)
		}
	}
	f("postgres://me:pw@DB:5433/x?sslmode=require", "t", "postgres://db:5433/x/public.t")
	f("postgresql://db/x", "s.t", "postgres://db:5432/x/s.t")
	f("postgres://a:1,b:2/x", "t", "postgres://a:1,b:2:5432/x/public.t")
	f("postgres://[::1]/x", "t", "postgres://[::1]:5432/x/public.t")
	f("postgres:///x?host=/run/pg&password=pw", "t", "postgres:///run/pg:5432/x/public.t")
	f("host=db dbname='x' password='p w'", "t", "postgres://db:5432/x/public.t")
	f("service=orders password=pw", "t", "postgres:host= port=5432 service=orders/public.t")
	f("postgres://me:pw@/", "t", "postgres:dbname= host= port=5432/public.t")
	f("", "t", "")
	f("host=db", "", "")
}
