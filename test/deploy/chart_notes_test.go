//go:build unix

package deploy

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guardNotes returns what helm says after an installation of volume-guard.
func guardNotes(t *testing.T, values ...string) string {
	t.Helper()
	return notes(t, append([]string{"install", guard, inDeploy(t, "charts", guard), "--namespace", guardHome},
		sets(values)...)...)
}

// TestNotesListFeatures: each is in the list of those that are on, or in that of those that can be switched on, by the
// values that do so.
func TestNotesListFeatures(t *testing.T) {
	features := map[string][]string{
		"podSafety.enabled=true":         {"podSafety.enabled=true"},
		"singleNode.enabled=true":        {"podSafety.enabled=true", "singleNode.enabled=true"},
		"statefulSetClaims.enabled=true": {"statefulSetClaims.enabled=true"},
		"statefulSetClaims.warn=true":    {"statefulSetClaims.warn=true"},
		"nodeFencing.enabled=true":       {"nodeFencing.enabled=true"},
		"web.enabled=true":               {"web.enabled=true"},
		"webhooks.pods=true":             {"webhooks.pods=true"},
		"controllers={*,pvc-protection}": {"controllers={*,pvc-protection}"},
		"controllers={*,pv-protection}":  {"controllers={*,pv-protection}"},
		"admissionPolicy.enabled=true":   {"admissionPolicy.enabled=true", "protectedDrivers.d=owner"},
	}
	on, off := onAndOff(t, guardNotes(t))
	if !strings.Contains(on, "intree: ") || strings.Contains(on, "=") {
		t.Errorf("by default on:\n%s", on)
	}
	for feature, values := range features {
		if !strings.Contains(off, feature) {
			t.Errorf("%s is not among what can be switched on:\n%s", feature, off)
		}
		on, off := onAndOff(t, guardNotes(t, values...))
		if !strings.Contains(on, feature) || strings.Contains(off, feature) {
			t.Errorf("with %q, on:\n%s\noff:\n%s", values, on, off)
		}
	}
}

// TestNotesKeepControllers: of two commands one after the other, the second one keeps the controller of the first.
func TestNotesKeepControllers(t *testing.T) {
	_, off := onAndOff(t, guardNotes(t, "controllers={-intree,pvc-protection,-pv-protection}"))
	if want := "'controllers={-intree,pvc-protection,pv-protection}'"; !strings.Contains(off, want) {
		t.Errorf("no %q in\n%s", want, off)
	}
}

// TestNotesNameImage: an upgrade that reuses the values keeps image.tag, so the version of the chart may not run.
func TestNotesNameImage(t *testing.T) {
	said := guardNotes(t, "image.registry=registry.example.com/storage", "image.tag=v0.0.9")
	if want := "registry.example.com/storage/volume-guard:v0.0.9 runs"; !strings.Contains(said, want) ||
		strings.Contains(said, "v0.1.0") {
		t.Errorf("want %q in\n%s", want, said)
	}
	const noRegistry = "named without a registry"
	if with, without := strings.Contains(said, noRegistry), guardNotes(t); with || !strings.Contains(without, noRegistry) {
		t.Errorf("with a registry:\n%s\nwithout:\n%s", said, without)
	}
}

// TestNotesNameNextSteps where nothing is done yet.
func TestNotesNameNextSteps(t *testing.T) {
	const idle = "has nothing to do until you switch on more"
	said := guardNotes(t, "fullnameOverride=keeper")
	for _, want := range []string{idle, "kubectl reclaim status", "deployment/keeper --namespace csi-reclaimer"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if said = guardNotes(t, "web.enabled=true", "dryRun=true"); strings.Contains(said, idle) || !strings.Contains(said,
		"writes nothing") || !strings.Contains(said, "upgrade with dryRun=false before") {
		t.Errorf("with the page, for a first look:\n%s", said)
	}
	if !strings.Contains(said, "http://localhost:8080/web/") {
		t.Errorf("no address of the page in\n%s", said)
	}
	for _, page := range regexp.MustCompile(`(docs/explanation/)?[a-z-]+\.md`).FindAllString(said, -1) {
		if page == filepath.Base(page) {
			page = "docs/how-to/" + page
		}
		read(t, "..", page)
	}
}

// onAndOff returns the two lists of the notes.
func onAndOff(t *testing.T, notes string) (on, off string) {
	t.Helper()
	form := regexp.MustCompile(`(?s)\nOn:\n(.*?)\n\n(?:On Kubernetes .*?\n\n)?Off \([^\n]*\n(.*?)\n\n`)
	found := form.FindStringSubmatch(notes)
	if found == nil {
		t.Fatalf("no lists in\n%s", notes)
	}
	return found[1], found[2]
}
