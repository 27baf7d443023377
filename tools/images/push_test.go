package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// serve starts a registry, optionally behind another handler, and returns the destination for a push.
func serve(t *testing.T, before func(http.Handler) http.Handler, options ...registry.Option) string {
	t.Helper()
	handler := registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...)
	if before != nil {
		handler = before(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/storage"
}

// pushing returns the options to push the build, and its destination.
func pushing(t *testing.T, to string) (options, destination) {
	t.Helper()
	o := builtOnce(t)
	o.push, o.progress = to, &bytes.Buffer{}
	from := must(readSource(t.Context(), o))(t)
	target := must(parseDestination(to, from))(t)
	return o, target
}

// digestOf returns the digest of a tag, or "".
func digestOf(t *testing.T, tag name.Tag) string {
	t.Helper()
	there, err := remote.Head(tag)
	if err != nil {
		return ""
	}
	return there.Digest.String()
}

// The registries are with and without an API for referrers.
func TestPush(t *testing.T) {
	for _, with := range []bool{true, false} {
		t.Run(fmt.Sprintf("referrers API %t", with), func(t *testing.T) {
			o, target := pushing(t, serve(t, nil, registry.WithReferrersSupport(with)))
			for range 2 { // a repeated push is no error
				ok(t, target.push(t.Context(), o))
			}
			tag := must(name.NewTag(target.name("tiny")))(t)
			index := must(remote.Index(tag))(t)
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			_, content := layoutOf(t, o)
			if digest, err := index.Digest(); err != nil || digest != content[0].Digest {
				t.Errorf("%v, %v, want %v", digest, err, content[0].Digest)
			}
			wantReferrers(t, o, tag.Digest(content[0].Digest.String()), "tiny.provenance.json")
			manifest := must(index.IndexManifest())(t)
			for _, m := range manifest.Manifests {
				wantReferrers(t, o, tag.Digest(m.Digest.String()), "tiny-linux-"+m.Platform.Architecture+".spdx.json",
					"tiny.provenance.json")
			}
		})
	}
}

// wantReferrers compares the referrers of an image with the files in the output folder.
func wantReferrers(t *testing.T, o options, subject name.Digest, want ...string) {
	t.Helper()
	index := must(remote.Referrers(subject))(t)
	manifest := must(index.IndexManifest())(t)
	var got []string
	for _, d := range manifest.Manifests {
		image := must(remote.Image(subject.Digest(d.Digest.String())))(t)
		of := must(image.Manifest())(t)
		file := of.Layers[0].Annotations["org.opencontainers.image.title"]
		got = append(got, file)
		kind := "application/vnd.in-toto+json"
		if strings.Contains(file, "spdx") {
			kind = "application/spdx+json"
		}
		if of.ArtifactType != kind || string(of.Layers[0].MediaType) != kind ||
			of.Subject.Digest.String() != subject.DigestStr() {
			t.Errorf("%s: %+v", file, of)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatal(layers, err)
		}
		content := must(layers[0].Compressed())(t)
		data, err := io.ReadAll(content)
		_ = content.Close()
		if err != nil || !bytes.Equal(data, readFile(t, o.output, "tiny", file)) {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q refer to it, want %q", subject, got, want)
	}
}

// The other program is not pushed either.
func TestTagsAreNotMoved(t *testing.T) {
	var pushed atomic.Int64
	count := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				pushed.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}
	o, target := pushing(t, serve(t, count))
	index, content := layoutOf(t, o)
	manifest := must(index.IndexManifest())(t)
	other := must(index.Image(manifest.Manifests[0].Digest))(t)
	tag := must(name.NewTag(target.name("tiny")))(t)
	ok(t, remote.Write(tag, other))
	was := manifest.Manifests[0].Digest.String()
	// The first of two programs could be pushed.
	two := o
	two.output = t.TempDir()
	for _, program := range []string{"another", "tiny"} {
		ok(t, os.CopyFS(filepath.Join(two.output, program), os.DirFS(filepath.Join(o.output, "tiny"))))
	}
	two.programs = []program{{name: "another"}, tiny}
	pushed.Store(0)
	wantError(t, target.push(t.Context(), two), tag.String(), was, content[0].Digest.String(), "OVERWRITE=1",
		"nothing was pushed")
	if is := digestOf(t, tag); is != was || pushed.Load() != 0 {
		t.Errorf("the tag names %q, and there were %d writes", is, pushed.Load())
	}
	o.overwrite = true
	ok(t, target.push(t.Context(), o))
	if is := digestOf(t, tag); is != content[0].Digest.String() {
		t.Errorf("the tag names %q, want %s", is, content[0].Digest)
	}
}

// If the registry rejects the documents, no tag is written.
func TestTagIsWrittenLast(t *testing.T) {
	refuse := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
				body, err := io.ReadAll(r.Body)
				var manifest v1.Manifest
				if err != nil || json.Unmarshal(body, &manifest) != nil || manifest.Subject != nil {
					http.Error(w, `{"errors":[{"code":"MANIFEST_INVALID","message":"no artifacts here"}]}`, http.StatusBadRequest)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			next.ServeHTTP(w, r)
		})
	}
	o, target := pushing(t, serve(t, refuse))
	tag := must(name.NewTag(target.name("tiny")))(t)
	wantError(t, target.push(t.Context(), o), tag.String(), "no artifacts here", "the tag was not written")
	if is := digestOf(t, tag); is != "" {
		t.Errorf("the tag names %q", is)
	}
}

// The error names the image, the cause and the next step.
func TestRegistryErrors(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusUnauthorized: "docker login", http.StatusForbidden: "docker login",
		http.StatusTeapot: "ask its operator",
	} {
		to := serve(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				http.Error(w, `{"errors":[{"code":"DENIED","message":"not you"}]}`, status)
			})
		})
		o, target := pushing(t, to)
		wantError(t, target.push(t.Context(), o), target.name("tiny"), "not you", want, "nothing was pushed")
	}
}

func TestRegistryUnreachable(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	ok(t, listener.Close())
	o, target := pushing(t, address+"/storage")
	wantError(t, target.push(t.Context(), o), address+"/storage/tiny:v1.2.3", "refused", "check that "+address,
		"nothing was pushed")
}

func TestDockerCredentials(t *testing.T) {
	to := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if account, password, _ := r.BasicAuth(); account != "me" || password != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`, http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	configuration := t.TempDir()
	t.Setenv("DOCKER_CONFIG", configuration)
	o, target := pushing(t, to)
	wantError(t, target.push(t.Context(), o), "docker login "+strings.TrimSuffix(to, "/storage"))
	account := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("me:secret"))}
	auths := must(json.Marshal(map[string]any{"auths": map[string]any{strings.TrimSuffix(to, "/storage"): account}}))(t)
	ok(t, os.WriteFile(filepath.Join(configuration, "config.json"), auths, 0o600))
	if err := target.push(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func TestDestinations(t *testing.T) {
	from := source{version: "v1"}
	for push, want := range map[string]string{"": "docker.io/library/x:v1",
		"registry.example.com/a/b/": "registry.example.com/a/b/x:v1", "localhost:5000": "localhost:5000/x:v1"} {
		if target, err := parseDestination(push, from); err != nil || target.name("x") != want {
			t.Errorf("%q: %+v, %v", push, target, err)
		}
	}
	for _, push := range []string{"storage", "https://registry.example.com/storage", "registry.example.com/UPPER"} {
		_, err := parseDestination(push, from)
		wantError(t, err, push, "REGISTRY/PATH")
	}
	from.modified = true
	_, err := parseDestination("registry.example.com/storage", from)
	wantError(t, err, "v1", "uncommitted")
	from.version = "v1-dirty"
	if _, err := parseDestination("registry.example.com/storage", from); err != nil {
		t.Error(err)
	}
}
