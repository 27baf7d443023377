package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// reported records the reports of a Cache of texts, and whether the cache claims to have reached an event's version
// before its handler has returned.
type reported struct {
	cache  *Cache[string]
	lines  []string
	coming string
	early  bool
}

func (t *reported) note(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
	t.early = t.early || t.cache.Reached(t.coming)
}

func (t *reported) Added(now string)           { t.note("+%s", now) }
func (t *reported) Updated(before, now string) { t.note("%s>%s", before, now) }
func (t *reported) Deleted(last string, final bool) {
	t.note("-%s %v", last, final)
}

// noServer is a client that is never called: the tests play the reflector themselves.
var noServer rest.Interface = &rest.RESTClient{}

// step is an operation of the reflector on its store.
type step struct {
	do      string
	objects []any
	version string
}

func pv(name, version, text string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version},
		Spec:       v1.PersistentVolumeSpec{StorageClassName: text},
	}
}

// all also receives the objects that are left out.
type all struct{ *reported }

func (t all) LeftOut(now string)         { t.note("left out %s", now) }
func (t all) LeftOutDeleted(last string) { t.note("left out, deleted %s", last) }

var errRecord = errors.New("cannot be read")

// recordText keeps the storage class of objects whose class is not "foreign".
func recordText(o runtime.Object, _ bool) (text string, keep bool, err error) {
	pv, ok := o.(*v1.PersistentVolume)
	if !ok {
		return "", false, errRecord
	}
	text = pv.Spec.StorageClassName
	return text, text != "foreign", nil
}

func TestCacheAsReflectorStore(t *testing.T) {
	first := step{"replace", []any{pv("a", "1", "a1"), pv("b", "2", "b1")}, "5"}
	cases := map[string]struct {
		steps    []step
		reported []string // in any order within one step
		kept     []string
	}{
		"the first list is added": {steps: []step{first}, reported: []string{"+a1", "+b1"}, kept: []string{"a1", "b1"}},
		"a change shows before and now": {
			steps:    []step{first, {"update", []any{pv("a", "6", "a2")}, "6"}},
			reported: []string{"+a1", "+b1", "a1>a2"}, kept: []string{"a2", "b1"},
		},
		"an end shows the last state": {
			steps:    []step{first, {"delete", []any{pv("a", "6", "a2")}, "6"}},
			reported: []string{"+a1", "+b1", "-a2 true"}, kept: []string{"b1"},
		},
		"a new list shows new, changed and missed deleted objects": {
			steps:    []step{first, {"replace", []any{pv("a", "7", "a3"), pv("c", "8", "c1")}, "9"}},
			reported: []string{"+a1", "+b1", "+c1", "-b1 false", "a1>a3"}, kept: []string{"a3", "c1"},
		},
		"a new list does not report unchanged objects": {
			steps:    []step{first, {"replace", []any{pv("a", "1", "a1"), pv("b", "2", "b1")}, "9"}},
			reported: []string{"+a1", "+b1"}, kept: []string{"a1", "b1"},
		},
		"irrelevant objects are neither kept nor delivered": {
			steps: []step{
				{"replace", []any{pv("a", "1", "foreign"), pv("b", "2", "b1")}, "5"},
				{"update", []any{pv("c", "6", "foreign")}, "6"},
				{"delete", []any{pv("a", "7", "foreign")}, "7"},
			},
			reported: []string{"+b1"}, kept: []string{"b1"},
		},
		"an object that becomes relevant is added": {
			steps:    []step{{"replace", []any{pv("a", "1", "foreign")}, "5"}, {"update", []any{pv("a", "6", "a1")}, "6"}},
			reported: []string{"+a1"}, kept: []string{"a1"},
		},
		"a once relevant object is followed to its end": {
			steps: []step{
				first,
				{"update", []any{pv("a", "6", "foreign")}, "6"},
				{"replace", []any{pv("a", "7", "foreign"), pv("b", "2", "b1")}, "9"},
				{"delete", []any{pv("a", "10", "foreign")}, "10"},
			},
			reported: []string{"+a1", "+b1", "-foreign true", "a1>foreign", "foreign>foreign"}, kept: []string{"b1"},
		},
		"the end of an unseen object is not delivered": {
			steps:    []step{first, {"delete", []any{pv("c", "6", "c1")}, "6"}},
			reported: []string{"+a1", "+b1"}, kept: []string{"a1", "b1"},
		},
		"a bookmark shows that nothing else has changed": {
			steps:    []step{first, {"bookmark", nil, "20"}},
			reported: []string{"+a1", "+b1"}, kept: []string{"a1", "b1"},
		},
	}
	for sentence, test := range cases {
		t.Run(sentence, func(t *testing.T) {
			handler := &reported{}
			c := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, handler)
			handler.cache = c
			for _, step := range test.steps {
				handler.coming = step.version
				play(t, store[string]{c}, step)
				if !c.Reached(step.version) {
					t.Errorf("after version %s it has not been reached", step.version)
				}
			}
			slices.Sort(handler.lines)
			if !slices.Equal(handler.lines, test.reported) {
				t.Errorf("reported %q, want %q", handler.lines, test.reported)
			}
			if handler.early {
				t.Error("a version was reached before its handler had received it")
			}
			var kept []string
			c.Each(func(text string) { kept = append(kept, text) })
			slices.Sort(kept)
			if !slices.Equal(kept, test.kept) {
				t.Errorf("kept %q, want %q", kept, test.kept)
			}
			if !c.Synced() {
				t.Error("not synced after a list")
			}
		})
	}
}

// during is a handler that calls a function with each event.
type during func()

func (d during) Added(string)         { d() }
func (d during) Updated(_, _ string)  { d() }
func (d during) Deleted(string, bool) { d() }

// An index shows the same records as Each, also while the handler receives a list.
func TestIndexAgreesWithEach(t *testing.T) {
	t.Parallel()
	group := func(text string) string { return strings.TrimRight(text, "0123456789") }
	var c *Cache[string]
	var in func(group string) []string
	events := 0
	check := func() {
		events++
		want := map[string][]string{}
		c.Each(func(text string) { want[group(text)] = append(want[group(text)], text) })
		delete(want, "") // records without a group
		if groups := c.indexes[0].names; len(groups) != len(want) {
			t.Errorf("event %d: there are groups without records: %v", events, groups)
		}
		for _, name := range []string{"", "a", "b", "foreign"} {
			got := in(name)
			slices.Sort(got)
			if slices.Sort(want[name]); !slices.Equal(got, want[name]) {
				t.Errorf("event %d: group %q has %q, want %q", events, name, got, want[name])
			}
		}
	}
	c = NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, during(check))
	in = c.Index(group)
	for _, s := range []step{
		{"replace", []any{pv("x", "1", "a1"), pv("y", "2", "b1"), pv("z", "3", "7"), pv("w", "4", "foreign")}, "5"},
		{"update", []any{pv("x", "6", "b2")}, "6"},
		{"update", []any{pv("y", "7", "8")}, "7"},
		{"update", []any{pv("z", "8", "a2")}, "8"},
		{"delete", []any{pv("x", "9", "a3")}, "9"},
		{"update", []any{pv("z", "10", "foreign")}, "10"},
		{"replace", []any{pv("v", "11", "a4"), pv("u", "12", "a5"), pv("z", "10", "foreign")}, "13"},
	} {
		play(t, store[string]{c}, s)
		check()
	}
	if play(t, store[string]{c}, step{"replace", nil, "14"}); len(c.indexes[0].names) > 0 || events < 20 {
		t.Errorf("after %d events, groups are left of objects that are gone: %v", events, c.indexes[0].names)
	}
}

func TestCacheOfNamespacedKind(t *testing.T) {
	record := func(o runtime.Object, _ bool) (string, bool, error) {
		claim, ok := o.(*v1.PersistentVolumeClaim)
		if !ok {
			return "", false, errRecord
		}
		return claim.Namespace, true, nil
	}
	handler := &reported{}
	c := NewCache(noServer, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, record, handler)
	handler.cache = c
	claim := func(namespace, version string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data",
			ResourceVersion: version}}
	}
	play(t, store[string]{c}, step{"replace", []any{claim("a", "1"), claim("b", "2")}, "5"})
	play(t, store[string]{c}, step{"delete", []any{claim("a", "6")}, "6"})
	if _, found := c.Get("a/data"); found {
		t.Error("the one that is gone is there")
	}
	if got, found := c.Get("b/data"); !found || got != "b" {
		t.Errorf("the one of the other namespace: %q, %v", got, found)
	}
	if want := []string{"+a", "+b", "-a true"}; !slices.Equal(slices.Sorted(slices.Values(handler.lines)), want) {
		t.Errorf("reported %q, want %q", handler.lines, want)
	}
}

// A handler may also follow the objects that take no memory.
func TestLeftOutHandler(t *testing.T) {
	handler := &reported{}
	c := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, all{handler})
	handler.cache = c
	for _, s := range []step{
		{"replace", []any{pv("a", "1", "foreign")}, "5"},
		{"update", []any{pv("a", "6", "foreign")}, "6"},
		{"update", []any{pv("b", "7", "own")}, "7"},
		{"update", []any{pv("b", "8", "foreign")}, "8"}, // known, so it is kept until its deletion
		{"delete", []any{pv("a", "9", "foreign")}, "9"},
		{"replace", []any{pv("c", "10", "foreign")}, "11"},
		{"replace", nil, "12"}, // a missed deletion
	} {
		handler.coming = s.version
		play(t, store[string]{c}, s)
	}
	want := []string{"left out foreign", "left out foreign", "+own", "own>foreign", "left out, deleted foreign",
		"left out foreign", "-foreign false"}
	if !slices.Equal(handler.lines, want) {
		t.Errorf("reported %q, want %q", handler.lines, want)
	}
	if handler.early {
		t.Error("a version was reached before the handler received its event")
	}
}

// creations also distinguishes creations from objects that are only seen for the first time.
type creations struct{ *reported }

func (c creations) Created(now string) { c.note("created %s", now) }

// An object of a list, and one that begins to matter, may be old.
func TestCreationHandler(t *testing.T) {
	t.Parallel()
	handler := &reported{}
	c := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, creations{handler})
	handler.cache = c
	to := store[string]{c}
	handler.coming = "5"
	must.OK(t, to.Replace([]any{pv("a", "1", "listed")}, "5"))
	for _, s := range []struct {
		call    func(any) error
		version string
		text    string
		name    string
	}{
		{fanOut{to}.Add, "6", "own", "b"}, {to.Add, "7", "foreign", "c"}, {to.Update, "8", "own", "c"},
		{to.Add, "9", "other", "a"}, {fanOut{to}.Update, "10", "late", "d"},
	} {
		handler.coming = s.version
		must.OK(t, s.call(pv(s.name, s.version, s.text)))
	}
	want := []string{"+listed", "created own", "+own", "listed>other", "+late"}
	if !slices.Equal(handler.lines, want) {
		t.Errorf("reported %q, want %q", handler.lines, want)
	}
}

func play(t *testing.T, to store[string], s step) {
	t.Helper()
	var err error
	switch s.do {
	case "replace":
		err = to.Replace(s.objects, s.version)
	case "update":
		err = to.Update(s.objects[0])
	case "delete":
		err = to.Delete(s.objects[0])
	case "bookmark":
		err = to.Bookmark(s.version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listing is a handler that is also called after whole lists.
type listing struct{ *reported }

func (t listing) Listed() {
	if !t.cache.Reached(t.coming) {
		t.lines = append(t.lines, "listed too early")
	}
	t.lines = append(t.lines, "listed")
}

func TestListHandler(t *testing.T) {
	handler := &reported{coming: "5"}
	c := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, listing{handler})
	handler.cache = c
	s := store[string]{c}
	list := func(version string, objects ...*v1.PersistentVolume) {
		t.Helper()
		items := make([]any, 0, len(objects))
		for _, o := range objects {
			e := must.Get(s.entryOf(o))(t)
			items = append(items, e)
		}
		handler.coming = version
		must.OK(t, s.Replace(items, version))
	}
	list("5", pv("a", "1", "a1"))
	list("9", pv("a", "1", "a1"))
	if want := []string{"+a1", "listed", "listed"}; !slices.Equal(handler.lines, want) || handler.early {
		t.Errorf("delivered %q, want %q; early: %v", handler.lines, want, handler.early)
	}
}

func TestCacheRefusesUnreadableObjects(t *testing.T) {
	c := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, &reported{})
	to := store[string]{c}
	if err := to.Replace([]any{&v1.Pod{}}, "1"); !errors.Is(err, errRecord) {
		t.Errorf("Replace = %v, want the recorder's error", err)
	}
	if err := to.Add("text"); err == nil {
		t.Error("took a text for an API object")
	}
	if err := to.Delete(&v1.Pod{}); !errors.Is(err, errRecord) {
		t.Errorf("Delete = %v, want the recorder's error", err)
	}
	if c.Synced() || cache.IsDone(c.Sync()) {
		t.Error("synced without a list")
	}
}

// A list holds only the objects that a Cache keeps, or passes to its handler.
func TestListsDropObjectsThatAreLeftOut(t *testing.T) {
	client := fake.NewClientset(pv("a", "1", "own"), pv("b", "2", "foreign"), pv("c", "3", "foreign"))
	newCache := func(record Recorder[string], handler Handler[string]) *Cache[string] {
		return NewTypedCache(client.CoreV1().PersistentVolumes(), "persistentvolumes", &v1.PersistentVolume{}, record,
			handler)
	}
	keepC := func(o runtime.Object, _ bool) (string, bool, error) {
		pv, ok := o.(*v1.PersistentVolume)
		return "c", ok && pv.Name == "c", nil
	}
	plain, known := newCache(recordText, &shown{}), newCache(recordText, &shown{})
	play(t, store[string]{known}, step{"update", []any{pv("c", "1", "own")}, "1"})
	for name, test := range map[string]struct {
		to   follower
		want int
	}{
		"a foreign object":                    {store[string]{plain}, 1},
		"one that was kept before":            {store[string]{known}, 2},
		"a handler that receives all objects": {store[string]{newCache(recordText, all{&reported{cache: plain}})}, 3},
		"a shared watch":                      {fanOut{store[string]{plain}, store[string]{newCache(keepC, &shown{})}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			from := *plain.source
			from.reduce = test.to.reduce
			page, err := from.ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil || meta.LenList(page) != test.want {
				t.Fatalf("a list of %d objects, %v, want %d", meta.LenList(page), err, test.want)
			}
		})
	}
}

func TestRecordAll(t *testing.T) {
	record := RecordAll(func(o *v1.Node) string { return o.Name })
	name, keep, err := record(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, false)
	if name != "a" || !keep || err != nil {
		t.Errorf("%q, kept %t: %v", name, keep, err)
	}
	if _, _, err := record(&v1.Pod{}, false); err == nil {
		t.Error("a pod is recorded as a node")
	}
}

func TestRecordIf(t *testing.T) {
	t.Parallel()
	record := RecordIf(func(o *v1.Node) string { return o.Name }, func(name *string) bool { return *name == "a" })
	for _, name := range []string{"a", "b"} {
		got, keep, err := record(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, false)
		if *got != name || keep != (name == "a") || err != nil {
			t.Errorf("%q, kept %t: %v", *got, keep, err)
		}
	}
	if _, keep, err := record(&v1.Pod{}, false); keep || err == nil {
		t.Error("a pod is recorded as a node")
	}
}

func TestOnChange(t *testing.T) {
	t.Parallel()
	var before, now string
	note := func(b, n string) { before, now = b, n }
	var handler LeftOutHandler[string] = OnEachChange[string]{OnChange: note,
		LeftOutChange: func(b, n string) { note("without "+b, "without "+n) }}
	for name, c := range map[string]struct {
		event       func()
		before, now string
	}{
		"added":   {func() { handler.Added("a") }, "", "a"},
		"updated": {func() { handler.Updated("a", "b") }, "a", "b"},
		"deleted": {func() { handler.Deleted("b", false) }, "b", ""},

		"left out":          {func() { handler.LeftOut("c") }, "without ", "without c"},
		"left out, deleted": {func() { handler.LeftOutDeleted("c") }, "without c", "without "},
	} {
		if c.event(); before != c.before || now != c.now {
			t.Errorf("%s: from %q to %q", name, before, now)
		}
	}
}
