package inflight

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var update = flag.Bool("update", false, "write testdata")

// fullEntry sets every field of Entry and Request, and the usual fields of requests and PersistentVolumes.
func fullEntry() Entry {
	begun := time.Date(2026, 8, 1, 12, 30, 15, 0, time.UTC)
	const name = "pvc-0a6b4f4c-6f0e-4a55-9c5e-2f2d6f7b8a01"
	claim := volume.ClaimRef{Namespace: "shop", Name: "data-db-0", UID: "0a6b4f4c-6f0e-4a55-9c5e-2f2d6f7b8a01"}
	create := &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 30, LimitBytes: 1 << 62},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4",
				MountFlags: []string{"noatime"}}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		}},
		Parameters: map[string]string{"pool": "fast <&> \"quoted\" \u2028", "csi.storage.k8s.io/pvc/name": claim.Name},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "vol-1"},
		}},
		AccessibilityRequirements: &csi.TopologyRequirement{
			Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "b", "rack": "7"}},
				{Segments: map[string]string{"zone": "a"}}},
			Preferred: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}},
		},
		MutableParameters: map[string]string{"iops": "3000"},
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver},
			Labels:      map[string]string{"team": "shop"},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod},
			ClaimRef: &v1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			StorageClassName:              "fast",
			MountOptions:                  []string{"noatime"},
			VolumeMode:                    ptr.To(v1.PersistentVolumeFilesystem),
			VolumeAttributesClassName:     ptr.To("gold"),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, FSType: "ext4", NodeStageSecretRef: &v1.SecretReference{Namespace: "secrets", Name: "stage"},
			}},
		},
	}
	first := Request{
		Node: "node-1", Create: create, Secret: &v1.SecretReference{Namespace: "secrets", Name: "admin"},
		Source:        &volume.SourceRef{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "source", UID: "7d1c"},
		DriverVersion: "1.4.0",
		OtherVersions: true,
		MayReschedule: true,
		PV:            pv, Topology: true, Migrated: true,
	}
	second := Request{Node: "node-2", Create: &csi.CreateVolumeRequest{Name: name},
		PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	return Entry{
		Discarding: true, Volume: name, Claim: claim, Begun: begun, Epoch: 41,
		Requests: []Request{first, second}}
}

func TestEncodeGoldenRoundTrip(t *testing.T) {
	for name, e := range map[string]Entry{"full": fullEntry(), "least": entry("pvc-1")} {
		t.Run(name, func(t *testing.T) {
			stored := must.Get(newCodec("log-topology").encode(&e))(t)
			value := plain(t, stored.value)
			if diff := cmp.Diff(&e, stored.entry, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			golden := filepath.Join("testdata", name+"-v1.json")
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(value+"\n"), 0o644))
			}
			want := must.Get(os.ReadFile(golden))(t)
			if diff := cmp.Diff(string(want), value+"\n"); diff != "" {
				t.Errorf("the format changed: give it a new version, and read the old one too (-want +got)\n%s", diff)
			}
			if len(value) > 4<<10 {
				t.Errorf("an entry takes %d bytes", len(value))
			}
		})
	}
}

// plain returns the decompressed value of an annotation.
func plain(t *testing.T, value string) string {
	t.Helper()
	text := must.Get(content(value, nil))(t)
	return string(text)
}

// TestFullEntryHasEveryField fails for a field that was added to the types but not to the tests.
func TestFullEntryHasEveryField(t *testing.T) {
	e := fullEntry()
	for _, v := range []reflect.Value{reflect.ValueOf(e), reflect.ValueOf(e.Claim), reflect.ValueOf(e.Requests[0])} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not set", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
}

func TestEncodeCopiesTheEntry(t *testing.T) {
	e := fullEntry()
	stored := must.Get(newCodec("log-topology").encode(&e))(t)
	r := &e.Requests[0]
	r.Create.Parameters["pool"], r.Secret.Name, r.Source.Name = "x", "x", "x"
	r.Create.AccessibilityRequirements.Requisite[0].Segments["zone"] = "x"
	r.PV.Annotations["x"] = "x"
	e.Requests[1].Node = "x"
	full := fullEntry()
	if diff := cmp.Diff(&full, stored.entry, protocmp.Transform()); diff != "" {
		t.Errorf("the entry of the log changed (-want +got)\n%s", diff)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Entry){
		"no volume":                  func(e *Entry) { e.Volume = "" },
		"a name no PV can have":      func(e *Entry) { e.Volume = "PVC_1" },
		"no claim":                   func(e *Entry) { e.Claim = volume.ClaimRef{} },
		"no UID":                     func(e *Entry) { e.Claim.UID = "" },
		"a name no claim can have":   func(e *Entry) { e.Claim.Name = "data\npersistentvolume/pv-1" },
		"a name no namespace has":    func(e *Entry) { e.Claim.Namespace = "shop.example" },
		"no request":                 func(e *Entry) { e.Requests = nil },
		"three requests":             func(e *Entry) { e.Requests = append(e.Requests, e.Requests[0]) },
		"no CreateVolume":            func(e *Entry) { e.Requests[1].Create = nil },
		"no PV":                      func(e *Entry) { e.Requests[1].PV = nil },
		"secrets":                    func(e *Entry) { e.Requests[0].Create.Secrets = map[string]string{"password": "x"} },
		"another volume's request":   func(e *Entry) { e.Requests[0].Create.Name = "pvc-2" },
		"another volume's PV":        func(e *Entry) { e.Requests[0].PV.Name = "pvc-2" },
		"an incomplete clone":        func(e *Entry) { e.Requests[0].Source.Name = "" },
		"a string that is no UTF-8":  func(e *Entry) { e.Requests[0].Create.Parameters["x"] = "\xff" },
		"a PV string that is none":   func(e *Entry) { e.Requests[0].PV.Annotations["x"] = "\xff" },
		"a node's name that is none": func(e *Entry) { e.Requests[0].Node = "\xff" },
		"a PV field that JSON ignores": func(e *Entry) {
			e.Requests[0].PV.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Add(1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := fullEntry()
			change(&e)
			if stored, err := newCodec("log-topology").encode(&e); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %q, %v, want ErrInvalid", stored.value, err)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	full := fullEntry()
	stored := must.Get(newCodec("log-topology").encode(&full))(t)
	good := plain(t, stored.value)
	_, requests, _ := strings.Cut(strings.TrimSuffix(good, "]}"), `"requests":[`)
	replace := func(old, by string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in the entry", old)
		}
		return strings.Replace(good, old, by, 1)
	}
	for name, test := range map[string]struct {
		value string
		want  error
	}{
		"nothing":                   {"", ErrDecode},
		"no JSON":                   {"x", ErrDecode},
		"null":                      {"null", ErrVersion},
		"no version":                {"{}", ErrVersion},
		"a later version":           {replace(`"version":1`, `"version":2`), ErrVersion},
		"a field more":              {replace(`"version":1`, `"version":1,"more":true`), ErrVersion},
		"a field more of a request": {replace(`"mayReschedule":true`, `"mayReschedule":true,"more":true`), ErrVersion},
		"a field more of the call":  {replace(`"create":{`, `"create":{"more":true,`), ErrVersion},
		"a field more of the PV":    {replace(`"persistentVolume":{`, `"persistentVolume":{"more":true,`), ErrVersion},
		"three requests":            {replace(`"requests":[`, `"requests":[`+strings.Repeat(requests+",", 2)), ErrVersion},
		"a field more, and cut off": {replace(`"version":1`, `"version":1,"more":true`)[:99], ErrDecode},
		"secrets":                   {replace(`"create":{`, `"create":{"secrets":{"a":"b"},`), ErrDecode},
		"something behind":          {good + "{}", ErrDecode},
		"cut off":                   {good[:len(good)/2], ErrDecode},
		"another volume":            {replace(`"volume":"pvc-0`, `"volume":"pvc-1`), ErrDecode},
		"no request":                {`{"version":1,"volume":"a","claim":{"namespace":"a","name":"a","uid":"a"},"epoch":1,"requests":[]}`, ErrDecode},
		"an empty request":          {`{"version":1,"volume":"a","claim":{"namespace":"a","name":"a","uid":"a"},"epoch":1,"requests":[{}]}`, ErrDecode},
	} {
		t.Run(name, func(t *testing.T) {
			one, err := newCodec("log-topology").decode(test.value, nil, noChunk)
			if e := one.entry; e != nil || !errors.Is(err, test.want) || !errors.Is(err, ErrDecode) {
				t.Errorf("got %v, %v, want %v", e, err, test.want)
			}
		})
	}
}

// FuzzDecode checks that no bytes panic, and that an accepted entry survives another round trip.
func FuzzDecode(f *testing.F) {
	for _, e := range []Entry{fullEntry(), entry("pvc-1")} {
		stored, err := newCodec("log-topology").encode(&e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stored.value)
	}
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, value string) {
		c := newCodec("log-topology")
		one, err := c.decode(value, nil, noChunk)
		if err != nil {
			return
		}
		again, err := c.encode(one.entry)
		if err != nil {
			return // encoding does not preserve all of it, such as fractions of a second
		}
		if twice, err := c.encode(again.entry); err != nil || twice.value != again.value {
			t.Errorf("%s\nbecomes %s, %v", again.value, twice.value, err)
		}
	})
}

func noChunk(string) (string, bool) { return "", false }

// FuzzDecodeLease checks that no annotations make Locate panic.
func FuzzDecodeLease(f *testing.F) {
	f.Add(logName+"-3", `{"version":1,"driver":"d","uid":"u","epoch":1}`, "in-flight.csi-reclaimer.io/pvc-1", "{}")
	f.Add("x", "{}", "in-flight.csi-reclaimer.io/sha256_", "")
	f.Fuzz(func(_ *testing.T, name, data, key, value string) {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "driver", Name: name, UID: "u", Annotations: map[string]string{annMeta: data, key: value},
		}}
		_, problems := Locate([]coordinationv1.Lease{lease}, nil)
		for _, p := range problems {
			_ = p.String()
		}
	})
}

func TestAnnotationKeysAreValidAndUnique(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]string{}
	for _, volume := range []string{
		"pvc-1", "a.b-c.d", long, long + "b", long + "c", strings.Repeat("a.", 126) + "a",
		"sha256-" + strings.Repeat("0", 32),
	} {
		key := annotationKey(volume)
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			t.Errorf("%s: %s: %v", volume, key, problems)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key", volume, other)
		}
		seen[key] = volume
		if got := volumeOf(key); len(volume) <= 63 && got != volume || len(volume) > 63 && got != "" {
			t.Errorf("the key of %s says %q", volume, got)
		}
	}
}

// TestShardsAreFixed guards the format: with another number or function, stored entries would be looked up elsewhere.
func TestShardsAreFixed(t *testing.T) {
	for volume, want := range map[string]int{"pvc-1": 2, "pvc-2": 7, "pvc-0a6b4f4c-6f0e-4a55-9c5e-2f2d6f7b8a01": 6} {
		if got := shardOf(volume, 8); got != want || Shards != 8 || shardOf(volume, 1) != 0 {
			t.Errorf("%s is in shard %d of %d, want %d of 8", volume, got, Shards, want)
		}
	}
}
