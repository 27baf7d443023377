package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func engine(t *testing.T, rules ...Rule) *Engine {
	t.Helper()
	e := must.Get(New(Config{FirstPage: "first", Crash: func() {}}))(t)
	must.OK(t, e.Set(Plan{Rules: rules}))
	return e
}

// work is ordinary work, which succeeds.
func work(context.Context) (any, error) { return nil, nil }

func TestRuleSelection(t *testing.T) {
	volume := func(name string) Call { return Call{Method: "DeleteVolume", Volume: name + "-id", VolumeName: name} }
	at := func(zone string) Call {
		return Call{Method: "CreateVolume", VolumeName: "v",
			Place: map[string]string{"region": "r", "example.com/zone": zone}}
	}
	nowhere := func(string) Call { return Call{Method: "DeleteVolume"} }
	for name, c := range map[string]struct {
		rule Rule
		call func(string) Call
		// One call for each letter; a capital letter is one that the rule picks.
		calls string
	}{
		"each call by default":            {rule: Rule{}, call: volume, calls: "AA"},
		"the first two":                   {rule: Rule{First: 2}, call: volume, calls: "ABc"},
		"the second alone":                {rule: Rule{Nth: 2}, call: volume, calls: "aBc"},
		"every second":                    {rule: Rule{Every: 2}, call: volume, calls: "aBcD"},
		"the first of each volume":        {rule: Rule{First: 1, PerVolume: true}, call: volume, calls: "ABab"},
		"by id":                           {rule: Rule{Volume: "a*"}, call: volume, calls: "Ab"},
		"by name":                         {rule: Rule{VolumeName: "?"}, call: volume, calls: "AB"},
		"not by a longer name":            {rule: Rule{VolumeName: "??"}, call: volume, calls: "ab"},
		"by the number of those it picks": {rule: Rule{Volume: "b*", Nth: 2}, call: volume, calls: "abaB"},
		"not a call without a volume":     {rule: Rule{Volume: "*"}, call: nowhere, calls: "a"},
		"by place":                        {rule: Rule{Method: "CreateVolume", Place: "*zone=a"}, call: at, calls: "Ab"},
		"not by a longer place":           {rule: Rule{Method: "CreateVolume", Place: "*zone=a?"}, call: at, calls: "a"},
		"by any segment of the place":     {rule: Rule{Method: "CreateVolume", Place: "region=r"}, call: at, calls: "A"},
		"not a call without a place":      {rule: Rule{Method: "*Volume", Place: "*"}, call: volume, calls: "a"},
		"not another method":              {rule: Rule{Method: "CreateVolume"}, call: volume, calls: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rule.Method == "" {
				c.rule.Method = "DeleteVolume"
			}
			c.rule.Action, c.rule.Code = Fail, "Internal"
			e := engine(t, c.rule)
			for i, letter := range c.calls {
				_, _, err := e.Do(t.Context(), c.call(strings.ToLower(string(letter))), work)
				if got := status.Code(err) == codes.Internal; got != unicode.IsUpper(letter) {
					t.Errorf("call %d of %s: picked %v", i, c.calls, got)
				}
			}
		})
	}
}

func TestShareIsStable(t *testing.T) {
	e := engine(t, Rule{Method: "*", Share: 0.5, Action: Fail, Code: "Internal"})
	hit := func(i int, method string) bool {
		_, _, err := e.Do(t.Context(), Call{Method: method, VolumeName: fmt.Sprintf("pvc-%d", i)}, work)
		return err != nil
	}
	n := 0
	for i := range 1000 {
		first := hit(i, "CreateVolume")
		if first {
			n++
		}
		if again := hit(i, "DeleteVolume"); again != first {
			t.Errorf("volume %d is picked at one time and not at another", i)
		}
	}
	if n < 450 || n > 550 {
		t.Errorf("got %d of 1000 volumes, want about half", n)
	}
}

func TestActions(t *testing.T) {
	failed := status.Error(codes.NotFound, "own")
	fail, delay := Rule{Action: Fail, Code: "Internal"}, Rule{Action: Delay, Delay: Duration(time.Second)}
	after := func(r Rule) Rule { r.AfterWork = true; return r }
	for name, c := range map[string]struct {
		rules  []Rule
		own    error
		worked bool
		want   codes.Code
		took   time.Duration
	}{
		"nothing":                     {worked: true},
		"nothing, and the work fails": {worked: true, own: failed, want: codes.NotFound},
		"fail":                        {rules: []Rule{fail}, want: codes.Internal},
		"fail after the work":         {rules: []Rule{after(fail)}, worked: true, want: codes.Internal},
		"delay":                       {rules: []Rule{delay}, worked: true, took: time.Second},
		"delays add up, before and after": {rules: []Rule{delay, after(delay)}, worked: true,
			took: 2 * time.Second},
		"delay, then fail": {rules: []Rule{delay, fail}, want: codes.Internal, took: time.Second},
		"delay beyond the deadline": {rules: []Rule{{Action: Delay, Delay: Duration(time.Hour)}},
			want: codes.DeadlineExceeded, took: time.Minute},
		"block": {rules: []Rule{{Action: Block}}, want: codes.DeadlineExceeded, took: time.Minute},
		"block after the work": {rules: []Rule{after(Rule{Action: Block})}, worked: true,
			want: codes.DeadlineExceeded, took: time.Minute},
		"hang": {rules: []Rule{{Action: Hang}}, want: codes.DeadlineExceeded, took: time.Minute},
		"hang after the work": {rules: []Rule{after(Rule{Action: Hang})}, worked: true,
			want: codes.DeadlineExceeded, took: time.Minute},
		"crash":                           {rules: []Rule{{Action: Crash}}, want: codes.Unavailable},
		"crash after the work":            {rules: []Rule{after(Rule{Action: Crash})}, worked: true, want: codes.Unavailable},
		"the first that decides, decides": {rules: []Rule{fail, {Action: Crash}}, want: codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range c.rules {
					c.rules[i].Method = "DeleteVolume"
				}
				e := engine(t, c.rules...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin, worked := time.Now(), false
				_, _, err := e.Do(ctx, Call{Method: "DeleteVolume"}, func(context.Context) (any, error) {
					worked = true
					return nil, c.own
				})
				if status.Code(err) != c.want || worked != c.worked || time.Since(begin) != c.took {
					t.Errorf("got %v, worked %v, after %s, want %v, %v, %s", err, worked, time.Since(begin), c.want, c.worked, c.took)
				}
			})
		})
	}
}

// A block ends with the plan, or with the driver. Delays come before it.
func TestBlockEnds(t *testing.T) {
	for name, end := range map[string]func(*Engine) error{
		"another plan": func(e *Engine) error { return e.Set(Plan{}) },
		"shutdown":     func(e *Engine) error { e.Release(); return nil },
	} {
		for _, afterWork := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after the work %t", name, afterWork), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := engine(t, Rule{Method: "*", Action: Delay, Delay: Duration(time.Second)},
						Rule{Method: "*", Action: Block, AfterWork: afterWork})
					worked, answered := false, make(chan error, 1)
					go func() {
						_, _, err := e.Do(t.Context(), Call{Method: "Probe"},
							func(context.Context) (any, error) { worked = true; return nil, nil })
						answered <- err
					}()
					time.Sleep(time.Hour) // Of the bubble's clock.
					synctest.Wait()
					if worked != afterWork || len(answered) > 0 {
						t.Fatalf("while it is blocked: worked %t, answered %t", worked, len(answered) > 0)
					}
					must.OK(t, end(e))
					if err := <-answered; err != nil || !worked {
						t.Errorf("after the block: worked %t, %v", worked, err)
					}
				})
			})
		}
	}
}

func TestSilenceOutlivesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, Rule{Method: "*", Action: Silence})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, _, err := e.Do(ctx, Call{Method: "Probe"}, work)
			answered <- err
		}()
		time.Sleep(time.Hour) // Of the bubble's clock.
		synctest.Wait()
		select {
		case err := <-answered:
			t.Fatalf("answered: %v", err)
		default:
		}
		e.Release()
		if err := <-answered; status.Code(err) != codes.Unavailable {
			t.Errorf("at shutdown: got %v, want Unavailable", err)
		}
	})
}

func TestCountersAndNames(t *testing.T) {
	e := engine(t, Rule{Name: "slow", Method: "*", Action: Delay, Delay: 1},
		Rule{Method: "DeleteVolume", Every: 2, Action: Fail, Code: "Aborted"})
	var names [][]string
	for range 2 {
		_, applied, _ := e.Do(t.Context(), Call{Method: "DeleteVolume"}, work)
		names = append(names, applied)
	}
	if want := [][]string{{"slow"}, {"slow", "rule-2"}}; !cmp.Equal(names, want) {
		t.Errorf("names: got %v, want %v", names, want)
	}
	want := []Counter{{Rule: "slow", Matched: 2, Applied: 2}, {Rule: "rule-2", Matched: 2, Applied: 1}}
	if got := e.Status().Counters; !cmp.Equal(got, want) {
		t.Errorf("counters: got %v, want %v", got, want)
	}
	must.OK(t, e.Set(Plan{}))
	if got := e.Status(); len(got.Counters)+len(got.Plan.Rules) > 0 {
		t.Errorf("after clearing: got %+v", got)
	}
}

func TestBaseRulesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must.Get(New(Config{Base: Latency(map[string]time.Duration{"DeleteVolume": time.Second})}))(t)
		must.OK(t, e.Set(Plan{}))
		begin := time.Now()
		_, applied, err := e.Do(t.Context(), Call{Method: "DeleteVolume"}, work)
		if err != nil || len(applied) > 0 || time.Since(begin) != time.Second {
			t.Errorf("got %v, %v, after %s", applied, err, time.Since(begin))
		}
		if got := e.Status(); len(got.Counters) > 0 {
			t.Errorf("status shows base rules: %+v", got)
		}
	})
}

func TestListActions(t *testing.T) {
	page := func() *csi.ListVolumesResponse {
		r := &csi.ListVolumesResponse{NextToken: "next"}
		for _, id := range []string{"a", "b", "c"} {
			r.Entries = append(r.Entries, &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id}})
		}
		return r
	}
	for name, c := range map[string]struct {
		action Action
		token  string
		ids    []string
		next   string
		code   codes.Code
	}{
		"expired token":            {action: ExpireToken, token: "t", code: codes.Aborted},
		"no token does not expire": {action: ExpireToken, ids: []string{"a", "b", "c"}, next: "next"},
		"repeat a page":            {action: RepeatPage, token: "t", ids: []string{"a", "b", "c"}, next: "t"},
		"repeat the first page":    {action: RepeatPage, ids: []string{"a", "b", "c"}, next: "first"},
		"duplicate":                {action: Duplicate, ids: []string{"a", "b", "c", "a"}, next: "next"},
		"reorder":                  {action: Reorder, ids: []string{"c", "b", "a"}, next: "next"},
		"omit":                     {action: Omit, ids: []string{"b", "c"}, next: "next"},
		"blank id":                 {action: BlankID, ids: []string{"", "b", "c"}, next: "next"},
	} {
		t.Run(name, func(t *testing.T) {
			original := page()
			e := engine(t, Rule{Method: "ListVolumes", Action: c.action})
			answer, _, err := e.Do(t.Context(), Call{Method: "ListVolumes", Token: c.token},
				func(context.Context) (any, error) { return original, nil })
			if status.Code(err) != c.code {
				t.Fatalf("got %v, want %v", err, c.code)
			}
			if err != nil {
				return
			}
			got, ok := answer.(*csi.ListVolumesResponse)
			if !ok {
				t.Fatalf("got %T", answer)
			}
			var ids []string
			for _, entry := range got.GetEntries() {
				ids = append(ids, entry.GetVolume().GetVolumeId())
			}
			if !slices.Equal(ids, c.ids) || got.GetNextToken() != c.next {
				t.Errorf("got %q, next %q, want %q, %q", ids, got.GetNextToken(), c.ids, c.next)
			}
			if first := original.GetEntries()[0].GetVolume().GetVolumeId(); first != "a" || len(original.GetEntries()) != 3 {
				t.Errorf("the driver's own answer was changed")
			}
		})
	}
}

func TestActionsOnEmptyAnswers(t *testing.T) {
	for _, action := range Actions() {
		for _, answer := range []any{nil, &csi.ListVolumesResponse{}, &csi.ListSnapshotsResponse{},
			&csi.DeleteVolumeResponse{}} {
			spoil(answer, action, "", "first")
		}
	}
}
