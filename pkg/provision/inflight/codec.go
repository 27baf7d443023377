package inflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
)

// entryVersion is the version of an entry's bytes. A change that an earlier program would misread needs a new one.
const entryVersion = 1

// maxRequests is how many requests an entry holds at most: the first one, and one for another node.
const maxRequests = 2

// The JSON form of an entry, version 1. Names are in the style of the Kubernetes API.
type (
	storedEntry struct {
		Version int         `json:"version"`
		Volume  string      `json:"volume"`
		Claim   storedClaim `json:"claim"`
		Begun   time.Time   `json:"begun"`
		Epoch   int64       `json:"epoch"`

		Discarding bool `json:"discarding,omitempty"`
		Adopted    bool `json:"adopted,omitempty"`

		Requests []storedRequest `json:"requests"`
	}
	storedClaim struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	}
	storedSource struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	}
	storedRequest struct {
		Node          string               `json:"node,omitempty"`
		Create        json.RawMessage      `json:"create"` // protojson
		Secret        *v1.SecretReference  `json:"secret,omitempty"`
		Source        *storedSource        `json:"source,omitempty"`
		MayReschedule bool                 `json:"mayReschedule,omitempty"`
		PV            *v1.PersistentVolume `json:"persistentVolume"`
		Topology      bool                 `json:"topology,omitempty"`
		Migrated      bool                 `json:"migrated,omitempty"`
	}
)

// encode returns the bytes of an entry, one line of JSON, and the entry that decode makes of them, which
// shares no memory with e. The time loses its fraction of a second. It fails, with ErrInvalid, for an entry that is
// not complete, holds a secret, or is not equal to what decode makes of it.
func encode(e *Entry) (string, *Entry, error) {
	whole := *e
	whole.Begun = e.Begun.UTC().Truncate(time.Second)
	value, err := marshal(&whole)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch back, err := decode(value); {
	case err != nil:
		return "", nil, fmt.Errorf("%w: it cannot be read back: %w", ErrInvalid, err)
	case !equal(&whole, back):
		return "", nil, fmt.Errorf("%w: it is not the same when it is read back", ErrInvalid)
	default:
		return value, back, nil
	}
}

func marshal(e *Entry) (string, error) {
	if err := validate(e); err != nil {
		return "", err
	}
	s := storedEntry{Version: entryVersion, Volume: e.Volume, Claim: stored(e.Claim), Begun: e.Begun, Epoch: e.Epoch,
		Discarding: e.Discarding, Adopted: e.Adopted}
	for i := range e.Requests {
		r := &e.Requests[i]
		// The spaces in protojson's output differ from one program to another; they are removed below.
		create, err := protojson.Marshal(r.Create)
		if err != nil {
			return "", err
		}
		request := storedRequest{
			Node: r.Node, Create: create, Secret: r.Secret, MayReschedule: r.MayReschedule,
			PV: r.PV, Topology: r.Topology, Migrated: r.Migrated,
		}
		if from := r.Source; from != nil {
			request.Source = &storedSource{Kind: from.Kind, Namespace: from.Namespace, Name: from.Name, UID: string(from.UID)}
		}
		s.Requests = append(s.Requests, request)
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false) // people read it; it is no HTML
	if err := encoder.Encode(s); err != nil {
		return "", err
	}
	return strings.TrimSuffix(buffer.String(), "\n"), nil
}

// decode returns the entry of the bytes. Fields that are not known are an error: without them the request would
// be another one.
func decode(value string) (*Entry, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal([]byte(value), &version); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	if version.Version != entryVersion {
		return nil, fmt.Errorf("%w: %w: version %d", ErrDecode, ErrVersion, version.Version)
	}
	var s storedEntry
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more than one value", ErrDecode)
	}
	e := &Entry{Volume: s.Volume, Claim: s.Claim.claim(), Begun: s.Begun, Epoch: s.Epoch, Discarding: s.Discarding,
		Adopted: s.Adopted}
	for i := range s.Requests {
		r := &s.Requests[i]
		request := Request{
			Node: r.Node, Create: &csi.CreateVolumeRequest{}, Secret: r.Secret, MayReschedule: r.MayReschedule,
			PV: r.PV, Topology: r.Topology, Migrated: r.Migrated,
		}
		if err := protojson.Unmarshal(r.Create, request.Create); err != nil {
			return nil, fmt.Errorf("%w: request: %w", ErrDecode, err)
		}
		if from := r.Source; from != nil {
			request.Source = &Source{Kind: from.Kind, Namespace: from.Namespace, Name: from.Name, UID: types.UID(from.UID)}
		}
		e.Requests = append(e.Requests, request)
	}
	if err := validate(e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return e, nil
}

// validate returns what is wrong with an entry.
func validate(e *Entry) error {
	if problems := validation.NameIsDNSSubdomain(e.Volume, false); len(problems) > 0 {
		return fmt.Errorf("volume name %q: %s", e.Volume, problems[0])
	}
	if err := validateClaim(e.Claim); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(e.Requests) == 0 || len(e.Requests) > maxRequests {
		return fmt.Errorf("%d requests", len(e.Requests))
	}
	for i := range e.Requests {
		if err := validateRequest(&e.Requests[i], e.Volume); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}

func validateRequest(r *Request, volume string) error {
	switch {
	case r.Create == nil || r.PV == nil:
		return errors.New("the request or the PersistentVolume is missing")
	case len(r.Create.GetSecrets()) > 0:
		return errors.New("it holds secrets")
	case r.Create.GetName() != volume:
		return fmt.Errorf("it is for volume %q", r.Create.GetName())
	case r.PV.Name != volume:
		return fmt.Errorf("its PersistentVolume is %q", r.PV.Name)
	case r.Source != nil && !r.Source.complete():
		return errors.New("kind, namespace, name and UID of the source are required")
	}
	return nil
}

func (s *Source) complete() bool {
	return s.Kind != "" && s.Namespace != "" && s.Name != "" && s.UID != ""
}

func validateClaim(c Claim) error {
	if c.Namespace == "" || c.Name == "" || c.UID == "" {
		return errors.New("namespace, name and UID are required")
	}
	return nil
}

// equal compares what matters to the driver and the API server: an empty list or map equals a missing one.
func equal(a, b *Entry) bool {
	if a.Volume != b.Volume || a.Claim != b.Claim || !a.Begun.Equal(b.Begun) || a.Epoch != b.Epoch ||
		a.Discarding != b.Discarding || a.Adopted != b.Adopted ||
		len(a.Requests) != len(b.Requests) {
		return false
	}
	for i := range a.Requests {
		x, y := a.Requests[i], b.Requests[i]
		if !proto.Equal(x.Create, y.Create) {
			return false
		}
		x.Create, y.Create = nil, nil
		if !equality.Semantic.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// clone returns a deep copy.
func clone(e *Entry) Entry {
	c := *e
	c.Requests = make([]Request, len(e.Requests))
	for i := range e.Requests {
		r := e.Requests[i]
		r.Create = proto.CloneOf(r.Create)
		r.PV = r.PV.DeepCopy()
		if r.Secret != nil {
			r.Secret = new(*r.Secret)
		}
		if r.Source != nil {
			r.Source = new(*r.Source)
		}
		c.Requests[i] = r
	}
	return c
}

func stored(c Claim) storedClaim {
	return storedClaim{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
}

func (c storedClaim) claim() Claim {
	return Claim{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID)}
}
