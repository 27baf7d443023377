package inflight

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestNext(t *testing.T) {
	rest := situation{known: true, ours: true, fenced: true, recheckIn: -1, moveIn: -1}
	with := func(change func(*situation)) situation {
		s := rest
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		situation situation
		step      step
		wait      time.Duration
	}{
		"nothing to do": {rest, stepWait, -1},
		"an error": {with(func(s *situation) { s.retryIn, s.known, s.puts = 1, false, true }),
			stepWait, 1},
		"unknown before all": {with(func(s *situation) { s.known, s.puts, s.missing = false, true, true }),
			stepRead, 0},
		"a question":                     {with(func(s *situation) { s.asked, s.puts = true, true }), stepRead, 0},
		"a question about a foreign one": {with(func(s *situation) { s.asked, s.readOnly = true, true }), stepRead, 0},
		"a put":                          {with(func(s *situation) { s.puts = true }), stepWrite, 0},
		"a removal that waits":           {with(func(s *situation) { s.removals, s.removeIn = true, 7 }), stepWait, 7},
		"a removal that waits, a recheck": {with(func(s *situation) { s.removals, s.removeIn, s.recheckIn = true, 7, 5 }),
			stepWait, 5},
		"entries that move later": {with(func(s *situation) { s.moveIn = 8 }), stepWait, 8},
		"entries that move later, a removal": {with(func(s *situation) { s.moveIn, s.removals, s.removeIn = 8, true, 7 }),
			stepWait, 7},
		"entries that move later, a recheck": {with(func(s *situation) { s.moveIn, s.recheckIn = 8, 5 }), stepWait, 5},
		"entries that move":                  {with(func(s *situation) { s.moveIn = 0 }), stepWrite, 0},
		"a removal that is due":              {with(func(s *situation) { s.removals = true }), stepWrite, 0},
		"a removal with a put": {with(func(s *situation) { s.removals, s.removeIn, s.puts = true, 7, true }),
			stepWrite, 0},
		"a write that may still land": {with(func(s *situation) { s.uncertain = true }), stepWrite, 0},
		"older annotations":           {with(func(s *situation) { s.ours = false }), stepWrite, 0},
		"a foreign one is not written": {with(func(s *situation) {
			s.readOnly, s.puts, s.removals, s.uncertain, s.ours, s.recheckIn, s.moveIn = true, true, true, true, false, 9, 0
		}), stepWait, 9},
		"a foreign one is read again": {with(func(s *situation) { s.readOnly, s.recheckIn = true, 0 }), stepRead, 0},
		"missing and empty": {with(func(s *situation) { s.missing, s.ours, s.uncertain = true, false, true }),
			stepWait, -1},
		"missing with entries": {with(func(s *situation) {
			s.missing, s.ours, s.entries, s.puts = true, false, true,
				true
		}), stepCreate, 0},
		"new": {with(func(s *situation) {
			s.fresh, s.fenced, s.ours, s.puts = true, false, false,
				true
		}), stepFence, 0},
		"new, and no other leader": {with(func(s *situation) { s.fresh, s.ours, s.puts = true, false, true }), stepWrite,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			if step, wait := next(test.situation); step != test.step || wait != test.wait {
				t.Errorf("got %v, %v, want %v, %v", step, wait, test.step, test.wait)
			}
		})
	}
}

func leaseOf(m meta, uid types.UID, entries ...string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "driver", Name: shardName(3), UID: uid, ResourceVersion: "7",
		Annotations: map[string]string{annMeta: m.String()},
	}}
	for _, volume := range entries {
		e := entry(volume)
		stored, err := newCodec("log-topology").encode(&e)
		if err != nil {
			panic(err)
		}
		l.Annotations[annotationKey(volume)] = stored.value
	}
	return l
}

func TestLook(t *testing.T) {
	good := meta{Version: 1, Driver: driver, UID: "u", Epoch: 3, Process: "p"}
	with := func(change func(*meta)) meta {
		m := good
		change(&m)
		return m
	}
	without, broken := leaseOf(good, "u"), leaseOf(good, "u")
	chunked := leaseOf(with(func(m *meta) { m.UID = "" }), "u")
	chunked.Annotations[chunkPrefix+"h"] = "{}"
	delete(without.Annotations, annMeta)
	broken.Annotations[annMeta] = "{"
	for name, test := range map[string]struct {
		lease          *coordinationv1.Lease
		want           error
		missing, fresh bool
	}{
		"missing":             {lease: nil, missing: true},
		"good":                {lease: leaseOf(good, "u", "pvc-1")},
		"new":                 {lease: leaseOf(with(func(m *meta) { m.UID = "" }), "u"), fresh: true},
		"new with entries":    {lease: leaseOf(with(func(m *meta) { m.UID = "" }), "u", "pvc-1"), want: ErrCopy},
		"new with chunks":     {lease: chunked, want: ErrCopy},
		"a copy":              {lease: leaseOf(good, "v"), want: ErrCopy},
		"another driver's":    {lease: leaseOf(with(func(m *meta) { m.Driver = "x" }), "u"), want: ErrForeign},
		"a later version":     {lease: leaseOf(with(func(m *meta) { m.Version = 3 }), "u"), want: ErrVersion},
		"no version":          {lease: leaseOf(with(func(m *meta) { m.Version = 0 }), "u"), want: ErrVersion},
		"nothing of ours":     {lease: without, want: ErrForeign},
		"invalid JSON":        {lease: broken, want: ErrForeign},
		"no annotation a map": {lease: &coordinationv1.Lease{}, want: ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			v := look(test.lease, driver)
			if !errors.Is(v.err, test.want) || v.missing() != test.missing || v.fresh() != test.fresh ||
				test.missing && len(v.entries()) > 0 {
				t.Errorf("got %v, missing %t, fresh %t", v.err, v.missing(), v.fresh())
			}
		})
	}
}

func TestSuperseded(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	at := func(epoch int64, process string) view {
		return look(leaseOf(meta{Version: 1, Driver: driver, UID: "u", Epoch: epoch, Process: process}, "u"), driver)
	}
	for name, test := range map[string]struct {
		view view
		same bool
		want bool
	}{
		"missing": {view{}, true, false},
		"new":     {look(leaseOf(meta{Version: 1, Driver: driver}, "u"), driver), false, false},
		"a copy of a later one": {look(leaseOf(meta{Version: 1, Driver: driver, UID: "v", Epoch: 9}, "u"), driver),
			true, false},
		"ours":                           {at(5, "p"), true, false},
		"ours of a take-over on its way": {at(4, "p"), true, false},
		"higher":                         {at(6, "q"), true, true},
		"the same epoch of another":      {at(5, "q"), true, true},
		"older annotations put back":     {at(4, "q"), true, false},
		"lower in another Lease":         {at(1, "q"), false, true},
	} {
		if got := superseded(test.view, own, test.same); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestTakeAndChooseEpoch(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Process: "p"}
	at := func(epoch int64, process string) view {
		return look(leaseOf(meta{Version: 1, Driver: driver, UID: "u", Epoch: epoch, Process: process}, "u"), driver)
	}
	foreign := look(leaseOf(meta{Version: 1, Driver: "x", UID: "u", Epoch: 90}, "u"), driver)
	for name, test := range map[string]struct {
		views []view
		epoch int64
		want  int64
	}{
		"nothing":                    {[]view{{}, {}}, 0, 1},
		"above all others":           {[]view{{}, at(3, "q"), at(7, "r")}, 0, 8},
		"foreign ones do not count":  {[]view{foreign, at(3, "q")}, 0, 4},
		"chosen before":              {[]view{at(8, "p"), at(7, "r")}, 8, 8},
		"chosen before, by both":     {[]view{at(8, "p"), at(8, "r")}, 8, 9},
		"chosen before, and another": {[]view{at(8, "p"), at(11, "r")}, 8, 12},
	} {
		own.Epoch = test.epoch
		if got := chooseEpoch(test.views, own); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
	own.Epoch = 8
	for name, test := range map[string]struct {
		view   view
		create bool
		want   taking
	}{
		"missing":            {view{}, true, takeCreate},
		"missing, and stays": {view{}, false, takeSkip},
		"foreign":            {foreign, true, takeLeave},
		"new":                {look(leaseOf(meta{Version: 1, Driver: driver}, "u"), driver), false, takeWrite},
		"another's":          {at(8, "q"), false, takeWrite},
		"ours, earlier":      {at(7, "p"), false, takeWrite},
		"ours":               {at(8, "p"), true, takeDone},
	} {
		if got := take(test.view, own, test.create); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

func TestJudgeAndAbsent(t *testing.T) {
	name := shardName(3)
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind()
	for what, test := range map[string]struct {
		err    error
		want   outcome
		absent bool
	}{
		"stored":          {nil, outcomeLanded, false},
		"conflict":        {apierrors.NewConflict(leasesResource, name, nil), outcomeConflict, false},
		"exists":          {apierrors.NewAlreadyExists(leasesResource, name), outcomeConflict, false},
		"invalid":         {apierrors.NewInvalid(kind, name, nil), outcomeRefused, false},
		"forbidden":       {fmt.Errorf("x: %w", apierrors.NewForbidden(leasesResource, name, nil)), outcomeRefused, false},
		"bad request":     {apierrors.NewBadRequest("x"), outcomeRefused, false},
		"too large":       {apierrors.NewRequestEntityTooLargeError("x"), outcomeRefused, false},
		"gone":            {apierrors.NewNotFound(leasesResource, name), outcomeUnknown, true},
		"another is gone": {apierrors.NewNotFound(leasesResource, "x"), outcomeUnknown, false},
		"no namespace":    {apierrors.NewNotFound(coordinationv1.Resource("namespaces"), name), outcomeUnknown, false},
		"of another API": {apierrors.NewNotFound(schema.GroupResource{Group: "x", Resource: "leases"}, name),
			outcomeUnknown, false},
		"without details": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}},
			outcomeUnknown, false},
		"a proxy's 404": {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", leasesResource, name, "x", 0,
			true), outcomeUnknown, false},
		"timeout":           {apierrors.NewTimeoutError("x", 0), outcomeUnknown, false},
		"internal":          {apierrors.NewInternalError(errors.New("x")), outcomeUnknown, false},
		"unauthorized":      {apierrors.NewUnauthorized("x"), outcomeUnknown, false},
		"too many requests": {apierrors.NewTooManyRequests("x", 1), outcomeUnknown, false},
		"no answer":         {errors.New("connection reset"), outcomeUnknown, false},
	} {
		if got := judge(test.err); got != test.want || absent(test.err, name) != test.absent {
			t.Errorf("%s: got %d, absent %t", what, got, absent(test.err, name))
		}
	}
}

func TestBackoff(t *testing.T) {
	conflict := apierrors.NewConflict(leasesResource, "x", nil)
	other := errors.New("x")
	for _, test := range []struct {
		failures int
		err      error
		random   float64
		want     time.Duration
	}{
		{1, conflict, 0.5, 0},
		{2, conflict, 0, 100 * time.Millisecond},
		{1, other, 0, 50 * time.Millisecond},
		{1, other, 0.5, 75 * time.Millisecond},
		{3, other, 0, 200 * time.Millisecond},
		{7, other, 0, 2500 * time.Millisecond},
		{1000, other, 0, 2500 * time.Millisecond},
		{1, apierrors.NewTooManyRequests("x", 9), 0, 9 * time.Second},
		{1000, apierrors.NewTooManyRequests("x", 1), 0, 2500 * time.Millisecond},
	} {
		if got := backoff(test.failures, test.err, test.random); got != test.want {
			t.Errorf("failure %d, %v, %v: got %v, want %v", test.failures, test.err, test.random, got, test.want)
		}
	}
}

// TestTotalIsTheSizeOfTheNextWrite checks that Put compares the limit with the size that the API server counts.
func TestTotalIsTheSizeOfTheNextWrite(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	s := newShard(3, shardName(3))
	m := own
	m.UID = "u"
	lease := leaseOf(m, "u", "pvc-1", "pvc-2")
	lease.Annotations["example.com/note"], lease.Annotations[settlePrefix+"pvc-1"] = "kept", "x"
	lease.Annotations[entryPrefix+"broken"] = "??"
	s.kept[entryPrefix+"broken"] = ErrDecode
	s.seen = look(lease, driver)
	e := entry("pvc-3")
	if it, err := s.put(annotationKey("pvc-3"), coded{entry: &e, value: "{}"}, own); it == nil || err != nil {
		t.Fatal(it, err)
	}
	total := s.total(own)
	next := s.compose(own)
	if got := size(next.Annotations); got < total || got > total+20 {
		t.Errorf("the next write has %d bytes, %d were counted", got, total)
	}
	if next.Annotations["example.com/note"] != "kept" || next.Annotations[entryPrefix+"broken"] != "??" ||
		len(next.Annotations) != 4 {
		t.Errorf("the next write has %v", next.Annotations)
	}
}

func TestComposeLeaseWithoutAnnotations(t *testing.T) {
	lease := compose(view{lease: &coordinationv1.Lease{}}, meta{Process: "p"}, map[string]string{entryPrefix + "a": "{}"},
		func(string) bool { return false })
	if lease.Annotations[entryPrefix+"a"] != "{}" || lease.Annotations[annMeta] == "" {
		t.Errorf("annotations %q", lease.Annotations)
	}
}
