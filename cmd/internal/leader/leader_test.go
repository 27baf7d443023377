package leader

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLeaseName(t *testing.T) {
	for driver, want := range map[string]string{
		"disk.csi.example.com": "disk-csi-example-com",
		"example.com/disk":     "example-com-disk",
		"disk":                 "disk",
		"Disk.CSI.Example":     "disk-csi-example",
		"disk-":                "disk-X",
		"disk.":                "disk-X",
	} {
		if got := LeaseName(driver); got != want {
			t.Errorf("LeaseName(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestATermThatIsClosedDoesNotBegin(t *testing.T) {
	var over term
	if err := over.close(); err != nil {
		t.Fatal(err)
	}
	over.run(func() error { t.Error("leads after the election is over"); return nil })
}

func TestCloseWaitsForTheTermAndReturnsItsError(t *testing.T) {
	wrong := errors.New("wrong")
	var now term
	begun, end := make(chan struct{}), make(chan struct{})
	go now.run(func() error { close(begun); <-end; return wrong })
	<-begun
	if !now.begun() {
		t.Error("does not say that it has begun")
	}
	closed := make(chan error)
	go func() { closed <- now.close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	select {
	case err := <-closed:
		t.Errorf("closed while the term went on: %v", err)
	case <-ctx.Done():
	}
	close(end)
	if err := <-closed; !errors.Is(err, wrong) {
		t.Errorf("close = %v, want %v", err, wrong)
	}
}
