package stamps_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
)

// written returns the stamps of runs in this order, a letter each: the pod's UID is the letter in lower case, so that
// a and A are two runs of one pod. They are a second apart.
func written(t *testing.T, order string) []stamps.Stamp {
	t.Helper()
	var content strings.Builder
	counts := map[string]uint64{}
	for i, letter := range strings.Split(order, "") {
		counts[letter]++
		line, err := stamps.Stamp{Pod: types.UID(strings.ToLower(letter)), Run: letter, Name: "pod", Node: "node-" + letter,
			Seq: counts[letter], Mono: time.Duration(i) * time.Second}.Line()
		if err != nil {
			t.Fatal(err)
		}
		content.Write(line)
	}
	all := must.Get(stamps.Parse([]byte(content.String())))(t)
	return all
}

func TestOverlaps(t *testing.T) {
	type pair struct {
		first, second string
		late          int
		seconds       int
	}
	for order, want := range map[string][]pair{
		"a":      nil,
		"aaa":    nil,
		"aaabbb": nil,
		"abc":    nil,
		"aA":     nil,
		"aba":    {{"a", "b", 1, 1}},
		"aabab":  {{"a", "b", 1, 1}},
		"abbaa":  {{"a", "b", 2, 3}},
		"aAa":    {{"a", "A", 1, 1}},
		"abca":   {{"a", "b", 1, 2}, {"a", "c", 1, 1}},
		"abcab":  {{"a", "b", 1, 2}, {"a", "c", 1, 1}, {"b", "c", 1, 2}},
		"aabcb":  {{"b", "c", 1, 1}},
	} {
		t.Run(order, func(t *testing.T) {
			overlaps := stamps.Overlaps(written(t, order))
			if len(overlaps) != len(want) {
				t.Fatalf("overlaps %v, want %v", overlaps, want)
			}
			for i, o := range overlaps {
				got := pair{o.First.Run, o.Second.Run, o.Late, int(o.For / time.Second)}
				if got != want[i] {
					t.Errorf("overlap %d is %+v, want %+v: %s", i, got, want[i], o)
				}
			}
		})
	}
}

func TestWriters(t *testing.T) {
	writers := stamps.Writers(written(t, "aabAab"))
	want := []stamps.Writer{
		{Pod: "a", Run: "a", Name: "pod", Node: "node-a", First: 0, Last: 4, Count: 3, Began: 0, Ended: 4 * time.Second},
		{Pod: "b", Run: "b", Name: "pod", Node: "node-b", First: 2, Last: 5, Count: 2, Began: 2 * time.Second,
			Ended: 5 * time.Second},
		{Pod: "a", Run: "A", Name: "pod", Node: "node-A", First: 3, Last: 3, Count: 1, Began: 3 * time.Second,
			Ended: 3 * time.Second},
	}
	if len(writers) != len(want) {
		t.Fatalf("writers %v", writers)
	}
	for i := range want {
		if writers[i] != want[i] {
			t.Errorf("writer %d is %+v, want %+v", i, writers[i], want[i])
		}
	}
}

func TestRead(t *testing.T) {
	const first = `{"pod":"a","run":"a","seq":1}` + "\n"
	const second = `{"pod":"a","run":"a","seq":2}` + "\n"
	for name, c := range map[string]struct {
		content string
		count   int
		damaged bool
	}{
		"nothing was written":             {"", 0, false},
		"whole lines":                     {first + second, 2, false},
		"the last write is under way":     {first + second[:10], 1, false},
		"a line is torn":                  {first[:10] + "\n" + second, 0, true},
		"a stamp is missing":              {second, 0, true},
		"a stamp is there twice":          {first + first, 1, true},
		"something else is in the volume": {"hello\n", 0, true},
		"without a writer":                {`{"seq":1}` + "\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), stamps.FileName)
			must.OK(t, os.WriteFile(path, []byte(c.content), 0o600))
			all, err := stamps.Read(path)
			if len(all) != c.count || errors.Is(err, stamps.ErrDamaged) != c.damaged || (err != nil) != c.damaged {
				t.Errorf("%d stamps and %v, want %d, damaged %v", len(all), err, c.count, c.damaged)
			}
		})
	}
	if all, err := stamps.Read(filepath.Join(t.TempDir(), "none")); err != nil || len(all) != 0 {
		t.Errorf("without a file: %v, %v", all, err)
	}
}
