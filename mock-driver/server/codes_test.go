package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestCodes(t *testing.T) {
	for sentinel, want := range map[error]codes.Code{
		backend.ErrVolumeNotFound: codes.NotFound, backend.ErrSnapshotNotFound: codes.NotFound,
		backend.ErrNodeNotFound: codes.NotFound,
		backend.ErrNotHere:      codes.NotFound, backend.ErrIncompatible: codes.AlreadyExists,
		backend.ErrInUse:       codes.FailedPrecondition,
		backend.ErrNotPrepared: codes.FailedPrecondition, backend.ErrExceedsVolume: codes.FailedPrecondition,
		backend.ErrOutOfRange: codes.OutOfRange,
		backend.ErrExhausted:  codes.ResourceExhausted, backend.ErrInvalid: codes.InvalidArgument,
		errors.New("disk full"): codes.Internal,
	} {
		got := asStatus(fmt.Errorf("volume %q: %w", "v", sentinel))
		if status.Code(got) != want || status.Convert(got).Message() == "" {
			t.Errorf("%v: got %v, want %v", sentinel, got, want)
		}
	}
	if err := asStatus(nil); err != nil {
		t.Errorf("no error: got %v", err)
	}
	if err := asStatus(status.Error(codes.Aborted, "x")); status.Code(err) != codes.Aborted {
		t.Errorf("a status: got %v", err)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("volumes", "pvc-1", "invalid-token")
	f.Add("snapshots", "", FirstPageToken())
	f.Fuzz(func(t *testing.T, list, id, arbitrary string) {
		if got, err := after(list, arbitrary); err == nil && arbitrary != "" && arbitrary != token(list, got) &&
			arbitrary != token(anyList, got) {
			t.Errorf("token %q, which was not given out, leads to %q", arbitrary, got)
		}
		if list == anyList || len(list) == 0 || strings.Contains(list, " ") {
			return
		}
		if got, err := after(list, token(list, id)); err != nil || got != id {
			t.Errorf("token of %q: got %q, %v", id, got, err)
		}
	})
}

func TestProfiles(t *testing.T) {
	for _, p := range Profiles() {
		if err := p.Capabilities.Validate(); err != nil {
			t.Errorf("profile %s: %v", p.Name, err)
		}
		if p.Help == "" {
			t.Errorf("profile %s has no help", p.Name)
		}
	}
	if _, err := FindProfile("imaginary"); err == nil {
		t.Error("an unknown profile is found")
	}
}

func TestCapabilitiesByName(t *testing.T) {
	s := only(ControllerService, CreateDeleteVolume)
	if err := s.Enable("expand_volume", "controller/PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES_PUBLISHED_NODES",
		"EXPANSION_ONLINE"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Capability{ControllerExpand, NodeExpand, PublishUnpublish, ListPublishedNodes, ExpansionOnline} {
		if !s[c] {
			t.Errorf("%s is missing", c)
		}
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	must.OK(t, s.Disable("PUBLISH_UNPUBLISH_VOLUME", "EXPAND_VOLUME"))
	for _, c := range []Capability{ListPublishedNodes, ExpansionOnline, NodeExpand} {
		if s[c] {
			t.Errorf("%s is still there, without what it depends on", c)
		}
	}
	if err := s.Enable("TELEPORT"); err == nil {
		t.Error("an unknown capability is accepted")
	}
	for _, bad := range []Capabilities{
		only(CreateDeleteVolume), only(ControllerService, CloneVolume), only(ControllerService, ListPublishedNodes),
		only(ControllerService, ListVolumeHealth),
		only(ExpansionOnline), only(ControllerService, ControllerExpand, ExpansionOnline, ExpansionOffline),
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%v is accepted", bad.List())
		}
	}
}

func TestDriverNames(t *testing.T) {
	for name, want := range map[string]bool{
		"mock.csi-reclaimer.io": true, "a": true, "A1": true, "": false, "-a": false, "a-": false, ".a": false,
		"a b": false, "a/b": false,
		"0123456789012345678901234567890123456789012345678901234567890123": false,
	} {
		if got := validDriverName(name); got != want {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
