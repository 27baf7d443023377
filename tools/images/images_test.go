package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// sums returns the digests of all files in a folder.
func sums(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(readFile(t, path))
		all[name] = hex.EncodeToString(sum[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A build of another checkout in another folder, with another umask and other settings of the go command, yields the
// same files.
func TestBuildsAreReproducible(t *testing.T) {
	first := builtOnce(t)
	second := testOptions(checkout(t))
	for key, value := range map[string]string{"GOFLAGS": "-buildvcs=true -tags=other", "GOAMD64": "v3", "GOARM64": "v9.0",
		"CGO_ENABLED": "1", "TZ": "Asia/Tokyo", "GOOS": "windows"} {
		t.Setenv(key, value)
	}
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	ok(t, run(t.Context(), second))
	one, other := sums(t, first.output), sums(t, second.output)
	if !maps.Equal(one, other) {
		t.Errorf("%v\n%v", one, other)
	}
	if len(one) < 10 {
		t.Errorf("only %d files are compared", len(one))
	}
	// A repeated build in the same folder replaces the earlier one, and leaves no other files.
	ok(t, run(t.Context(), second))
	if again := sums(t, second.output); !maps.Equal(one, again) {
		t.Errorf("%v\n%v", one, again)
	}
	entries, err := os.ReadDir(second.output)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestDigestDependsOnSource(t *testing.T) {
	first := builtOnce(t)
	index, _ := layoutOf(t, first)
	was := must(index.Digest())(t)
	second := testOptions(checkout(t))
	second.epoch = "1700000001"
	ok(t, run(t.Context(), second))
	index, _ = layoutOf(t, second)
	if is, err := index.Digest(); err != nil || is == was {
		t.Errorf("%v, %v with another time", is, err)
	}
}

func TestImages(t *testing.T) {
	o := builtOnce(t)
	index, content := layoutOf(t, o)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if name := content[0].Annotations["io.containerd.image.name"]; name != "docker.io/library/tiny:v1.2.3" {
		t.Errorf("containerd names it %q", name)
	}
	manifest := must(index.IndexManifest())(t)
	from := must(readSource(t.Context(), o))(t)
	want := map[string]string{
		"org.opencontainers.image.created":     "2023-11-14T22:13:20Z",
		"org.opencontainers.image.title":       "tiny",
		"org.opencontainers.image.description": "says hello",
		"org.opencontainers.image.version":     testVersion,
		"org.opencontainers.image.revision":    from.revision,
		"org.opencontainers.image.source":      home,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	if len(from.revision) != 40 || !maps.Equal(manifest.Annotations, want) {
		t.Errorf("index: %v", manifest.Annotations)
	}
	var platforms []v1.Platform
	for _, described := range manifest.Manifests {
		platforms = append(platforms, *described.Platform)
		image := must(index.Image(described.Digest))(t)
		testImage(t, image, *described.Platform, want)
	}
	if !slices.EqualFunc(platforms, o.platforms, func(a, b v1.Platform) bool { return a.Equals(b) }) {
		t.Errorf("platforms %v", platforms)
	}
}

func testImage(t *testing.T, image v1.Image, platform v1.Platform, labels map[string]string) {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil || !maps.Equal(manifest.Annotations, labels) {
		t.Errorf("%v: annotations %v, %v", platform, manifest, err)
	}
	file := must(image.ConfigFile())(t)
	created := time.Unix(testEpoch, 0).UTC()
	if file.OS != platform.OS || file.Architecture != platform.Architecture || !file.Created.Equal(created) {
		t.Errorf("%v: %+v", platform, file)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/tiny"}, Labels: labels}
	if !reflect.DeepEqual(file.Config, want) {
		t.Errorf("%v: %+v", platform, file.Config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%v: %d layers, %v", platform, len(layers), err)
	}
	content := must(layers[0].Uncompressed())(t)
	defer func() { _ = content.Close() }()
	entries := tar.NewReader(content)
	header := must(entries.Next())(t)
	if header.Name != "tiny" || header.Typeflag != tar.TypeReg || header.Mode != 0o555 || header.Uid != 0 ||
		header.Gid != 0 || !header.ModTime.Equal(created) || header.Uname+header.Gname != "" {
		t.Errorf("%v: %+v", platform, header)
	}
	if program, err := io.ReadAll(entries); err != nil || !bytes.HasPrefix(program, []byte("\x7fELF")) {
		t.Errorf("%v: %d bytes that are no program, %v", platform, len(program), err)
	}
	if header, err := entries.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%v: there is %+v, too: %v", platform, header, err)
	}
}

// The library that wrote the SBOM also has to read it.
func TestSBOMListsModules(t *testing.T) {
	o := builtOnce(t)
	for _, platform := range []string{"amd64", "arm64"} {
		text := readFile(t, o.output, tiny.name, "tiny-linux-"+platform+".spdx.json")
		document := must(spdxjson.Read(bytes.NewReader(text)))(t)
		if err := spdxlib.ValidateDocument(document); err != nil {
			t.Error(err)
		}
		described, err := spdxlib.GetDescribedPackageIDs(document)
		if err != nil || len(described) != 1 || described[0] != "main" {
			t.Errorf("it describes %v, %v", described, err)
		}
		if document.SPDXVersion != "SPDX-2.3" || document.CreationInfo.Created != "2023-11-14T22:13:20Z" ||
			!strings.HasPrefix(document.DocumentNamespace, "https://") {
			t.Errorf("%+v", document)
		}
		licences := map[string]string{}
		for _, p := range document.Packages {
			licences[p.PackageExternalReferences[0].Locator] = p.PackageLicenseDeclared
			if p.FilesAnalyzed || !p.IsFilesAnalyzedTagPresent {
				t.Errorf("%s: its files are analysed", p.PackageName)
			}
		}
		release := strings.TrimPrefix(goVersion(t), "go")
		want := map[string]string{"pkg:golang/example.com/tiny@v1.2.3": "Apache-2.0",
			"pkg:golang/example.com/words@v1.4.0": "NOASSERTION", "pkg:golang/stdlib@" + release: "NOASSERTION"}
		if !maps.Equal(licences, want) {
			t.Errorf("%v, want %v", licences, want)
		}
	}
}

// The statement has the digests and their inputs, and neither time, place nor person.
func TestProvenance(t *testing.T) {
	o := builtOnce(t)
	text := readFile(t, o.output, tiny.name, "tiny.provenance.json")
	statement := &intoto.Statement{}
	ok(t, protojson.Unmarshal(text, statement))
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	index, _ := layoutOf(t, o)
	manifest := must(index.IndexManifest())(t)
	digest := must(index.Digest())(t)
	want := map[string]string{"tiny": digest.Hex}
	for _, m := range manifest.Manifests {
		want["tiny "+m.Platform.String()] = m.Digest.Hex
	}
	got := map[string]string{}
	for _, s := range statement.GetSubject() {
		got[s.GetName()] = s.GetDigest()["sha256"]
	}
	if !maps.Equal(got, want) || len(got) != 3 {
		t.Errorf("%v, want %v", got, want)
	}
	from := must(readSource(t.Context(), o))(t)
	var predicate map[string]any
	if data, err := json.Marshal(statement.GetPredicate().AsMap()); err != nil || json.Unmarshal(data, &predicate) != nil {
		t.Fatal(err)
	}
	definition := predicate["buildDefinition"].(map[string]any)
	if got, want := definition["resolvedDependencies"], []any{map[string]any{"uri": "git+" + home,
		"digest": map[string]any{"gitCommit": from.revision}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got, want := definition["internalParameters"], map[string]any{"goVersion": goVersion(t),
		"environment": list(fixed)}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got, want := definition["externalParameters"], map[string]any{"program": "./cmd/tiny", "version": testVersion,
		"revision": from.revision, "platforms": []any{"linux/amd64", "linux/arm64"}, "buildFlags": list(o.buildFlags),
		"sourceDateEpoch": "1700000000"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got, want := predicate["runDetails"], map[string]any{"builder": map[string]any{
		"id": builderID}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// The archive has the form for "ctr images import".
func TestArchive(t *testing.T) {
	o := builtOnce(t)
	got := map[string]string{}
	entries := tar.NewReader(bytes.NewReader(readFile(t, o.output, tiny.name, "tiny.tar")))
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data := must(io.ReadAll(entries))(t)
		sum := sha256.Sum256(data)
		got[header.Name] = hex.EncodeToString(sum[:])
	}
	if want := sums(t, filepath.Join(o.output, tiny.name, layoutFolder)); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTable(t *testing.T) {
	o := builtOnce(t)
	index, content := layoutOf(t, o)
	manifest := must(index.IndexManifest())(t)
	lines := strings.Split(strings.TrimSpace(o.out.(*bytes.Buffer).String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%q", lines)
	}
	for i, want := range [][]string{{"IMAGE", "PLATFORM", "SIZE", "DIGEST"}, {"all", content[0].Digest.String()},
		{"linux/amd64", manifest.Manifests[0].Digest.String()}, {"linux/arm64", manifest.Manifests[1].Digest.String()}} {
		fields := strings.Fields(lines[i])
		for _, word := range want {
			if !slices.Contains(fields, word) {
				t.Errorf("%q has no %q", fields, word)
			}
		}
	}
}

// An --output that is a folder of sources must not destroy them.
func TestOtherFoldersAreNotReplaced(t *testing.T) {
	o := testOptions(checkout(t))
	o.output = filepath.Join(o.root, "cmd")
	wantError(t, run(t.Context(), o), "image of tiny", "in the way", "--output")
	if got := string(readFile(t, o.root, "cmd", "tiny", "main.go")); got != sources["cmd/tiny/main.go"] {
		t.Errorf("%q", got)
	}
}
