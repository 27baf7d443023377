package faults

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestInvalidPlanErrors(t *testing.T) {
	for plan, want := range map[string]string{
		``:                              `the JSON ends too early`,
		`{`:                             `the JSON ends too early`,
		`[]`:                            `the plan: a JSON array does not fit`,
		`{"rule":[]}`:                   `unknown field "rule"`,
		`{"rules":[]} {}`:               `more follows after the plan`,
		`{"rules":[{"action":"hang"}]}`: `rules[0].method: must name an RPC`,
		`{"rules":[{"method":"DeleteVolumes","action":"hang"}]}`:                                          `rules[0].method: "DeleteVolumes" matches no RPC`,
		`{"rules":[{"method":"*","action":"explode"}]}`:                                                   `rules[0].action: "explode" is not one of`,
		`{"rules":[{"method":"*"}]}`:                                                                      `rules[0].action: "" is not one of`,
		`{"rules":[{"method":"*","action":"hang"},{"method":"*","action":"fail","code":"Oops"}]}`:         `rules[1].code: "Oops" is not a gRPC error code`,
		`{"rules":[{"method":"*","action":"fail"}]}`:                                                      `rules[0].code: "" is not`,
		`{"rules":[{"method":"*","action":"fail","code":"OK"}]}`:                                          `rules[0].code: "OK" is not`,
		`{"rules":[{"method":"*","action":"hang","code":"Internal"}]}`:                                    `rules[0].code: code and message go with action fail`,
		`{"rules":[{"method":"*","action":"delay"}]}`:                                                     `rules[0].delay: must be a positive duration`,
		`{"rules":[{"method":"*","action":"delay","delay":"soon"}]}`:                                      `delay: "soon" is not a duration`,
		`{"rules":[{"method":"*","action":"delay","delay":5}]}`:                                           `delay: a JSON number does not fit`,
		`{"rules":[{"method":"*","action":"hang","delay":"5s"}]}`:                                         `rules[0].delay: goes with action delay`,
		`{"rules":[{"method":"*","action":"hang","nth":-1}]}`:                                             `rules[0].nth: -1 is negative`,
		`{"rules":[{"method":"*","action":"hang","nth":1.5}]}`:                                            `nth: a JSON number 1.5 does not fit`,
		`{"rules":[{"method":"*","action":"hang","first":1,"every":2}]}`:                                  `rules[0].every: only one of`,
		`{"rules":[{"method":"DeleteVolume","action":"hang","place":"zone=a"}]}`:                          `rules[0].place: goes with CreateVolume`,
		`{"rules":[{"method":"*","action":"hang","share":2}]}`:                                            `rules[0].share: 2 is not between 0 and 1`,
		`{"rules":[{"method":"*","action":"reorder"}]}`:                                                   `rules[0].method: action reorder is for`,
		`{"rules":[{"method":"List*","action":"omit","afterWork":true}]}`:                                 `rules[0].afterWork: means nothing`,
		`{"rules":[{"name":"a","method":"*","action":"hang"},{"name":"a","method":"*","action":"hang"}]}`: `rules[1].name: "a" is taken`,
	} {
		_, err := ParsePlan([]byte(plan))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got %v\nwant %s", plan, err, want)
		}
	}
}

func TestPlanJSONRoundTrip(t *testing.T) {
	want := Plan{Rules: []Rule{
		{Name: "slow", Method: "DeleteVolume", Volume: "pvc-*", Share: 0.5, Every: 3, PerVolume: true, Action: Delay,
			Delay: Duration(200 * time.Millisecond)},
		{Name: "liar", Method: "*Volume", VolumeName: "?", Place: "zone=*", Nth: 2, Action: Fail, Code: "DEADLINE_EXCEEDED",
			Message: "no", AfterWork: true},
	}}
	data := must.Get(json.Marshal(want))(t)
	got, err := ParsePlan(data)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%s: %v\n%s", data, err, cmp.Diff(want, got))
	}
}

func TestREADMEPlan(t *testing.T) {
	readme := must.Get(os.ReadFile("../README.md"))(t)
	_, rest, _ := strings.Cut(string(readme), "```json\n{\"rules\"")
	plan, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the README shows no plan")
	}
	if _, err := ParsePlan([]byte(`{"rules"` + plan)); err != nil {
		t.Error(err)
	}
}

func TestParseCode(t *testing.T) {
	for name, want := range map[string]codes.Code{
		"Internal": codes.Internal, "INTERNAL": codes.Internal, "DEADLINE_EXCEEDED": codes.DeadlineExceeded,
		"DeadlineExceeded": codes.DeadlineExceeded,
		"CANCELLED":        codes.Canceled, "Canceled": codes.Canceled, "OK": codes.OK,
	} {
		if got, ok := ParseCode(name); !ok || got != want {
			t.Errorf("%s: got %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "Code(99)", "5", "Nope"} {
		if got, ok := ParseCode(name); ok {
			t.Errorf("%q: got %v", name, got)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"a*", "a/b/c", true},
		{"*c", "abc", true}, {"*c", "abcd", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false},
		{"[a]", "a", false}, {"[a]", "[a]", true},
		{"**", "x", true}, {"pvc-*-*", "pvc-1", false}, {"\\*", "\\anything", true},
	} {
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("glob(%q, %q): got %v", c.pattern, c.s, got)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(`{"rules":[{"method":"*","action":"fail","code":"Internal","share":0.5}]}`))
	f.Add([]byte(`{"rules":[{"method":"List*","action":"repeat-page","first":1,"delay":"1s"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := ParsePlan(data)
		if err != nil {
			return
		}
		e := must.Get(New(Config{}))(t)
		if err := e.Set(plan); err != nil {
			t.Fatalf("a parsed plan is refused: %v", err)
		}
		e.decide(Call{Method: "DeleteVolume", Volume: "v", VolumeName: "n"})
	})
}
