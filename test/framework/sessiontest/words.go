package sessiontest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Names checks that the actions up to the last one, and no others, have names, and returns the names, which differ.
func Names[A interface {
	~uint8
	fmt.Stringer
}](t *testing.T, last A) (names []string) {
	t.Helper()
	for a := range last + 1 {
		name := a.String()
		if name == "" || name == "Unknown" || slices.Contains(names, name) {
			t.Errorf("action %d is called %q, others are called %q", a, name, names)
		}
		names = append(names, name)
	}
	for _, a := range []A{last + 1, 99} {
		if name := a.String(); name != "Unknown" {
			t.Errorf("action %d, which does not exist, is called %q", a, name)
		}
	}
	return names
}

// Actions checks the names and kinds of actions. The first action waits, actions named Read or List are reads, and all
// others, known or not, are writes.
func Actions[A interface {
	~uint8
	fmt.Stringer
	Kind() session.Kind
}](t *testing.T, last A) {
	t.Helper()
	Names(t, last)
	for a := range last + 2 {
		want := session.Writes
		switch name := a.String(); {
		case a == 0:
			want = session.Waits
		case strings.HasPrefix(name, "Read"), strings.HasPrefix(name, "List"):
			want = session.Reads
		}
		if a.Kind() != want {
			t.Errorf("%s (%d) is of kind %d, want %d", a, a, a.Kind(), want)
		}
	}
}

// Reasons checks the reasons of a package, at least so many: each is listed once, has a sentence, which differs from
// the others unless it repeats one, and has Events only if it waits. A command in a sentence deletes a terminating pod
// with --force, without which kubectl leaves the pod as it is.
func Reasons[F reasons.Family](t *testing.T, all []reasons.Word[F], least int,
	repeats ...reasons.Word[F]) {
	t.Helper()
	const command = "kubectl reclaim delete-pod"
	words, sentences := map[reasons.Word[F]]bool{}, map[string]bool{}
	for _, r := range all {
		s := r.Sentence()
		if words[r] || sentences[s] != slices.Contains(repeats, r) || !strings.HasSuffix(s, ".") ||
			strings.Contains(s, "  ") {
			t.Errorf("%s has the sentence %q, listed before %t, used before %t", r, s, words[r], sentences[s])
		}
		words[r], sentences[s] = true, true
		if event := r.EventType(); event != "" && !r.Waits() {
			t.Errorf("%s has Events of type %s, and does not wait", r, event)
		}
		if strings.Count(s, command) != strings.Count(s, command+" --force") {
			t.Errorf("%s deletes a pod without --force: %q", r, s)
		}
	}
	if len(all) < least {
		t.Errorf("%d reasons, want at least %d", len(all), least)
	}
	if none := reasons.Word[F]("None").About(); none != (reasons.About{}) {
		t.Errorf("a reason that does not exist means %+v", none)
	}
}
