package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// destination is the prefix and tag of image names. If nothing is pushed, names have the prefix with which a kubelet
// completes a bare program name in a manifest.
type destination struct{ prefix, version string }

func parseDestination(push string, from source) (destination, error) {
	if push == "" {
		return destination{"docker.io/library", from.version}, nil
	}
	push = strings.TrimRight(push, "/")
	_, err := name.NewRepository(push+"/"+programs[0].name, name.StrictValidation)
	if strings.Contains(push, "://") { // the library would take the scheme for a registry
		err = errors.New("it has a scheme")
	}
	if err != nil {
		return destination{}, fmt.Errorf("push to %q: %w; it is REGISTRY/PATH, such as registry.example.com/storage",
			push, err)
	}
	if from.modified && !strings.Contains(from.version, "dirty") {
		return destination{}, fmt.Errorf("push %s: the checkout has uncommitted changes, and the version does not say so; "+
			"commit them, or add \"-dirty\" to the version", from.version)
	}
	return destination{push, from.version}, nil
}

func (d destination) name(program string) string { return d.prefix + "/" + program + ":" + d.version }

// push pushes all programs, after it has checked that it may write all tags.
func (d destination) push(ctx context.Context, o options) error {
	settings := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent("csi-reclaimer-images")}
	var all []*pushed
	for _, p := range o.programs {
		one, err := d.open(o, p, settings)
		if err == nil {
			err = one.checkTag(o)
		}
		if err != nil {
			return fmt.Errorf("push %s: %w; nothing was pushed", d.name(p.name), err)
		}
		all = append(all, one)
	}
	for _, one := range all {
		fmt.Fprintf(o.progress, "pushing %s\n", one.tag)
		if err := one.push(o); err != nil {
			return fmt.Errorf("push %s: %w; the tag was not written", one.tag, err)
		}
		fmt.Fprintf(o.progress, "pushed %s\n", one.tag)
	}
	return nil
}

type pushed struct {
	tag      name.Tag
	settings []remote.Option
	layout   v1.ImageIndex
	// content are the index of the images, which comes first, and the artifacts that refer to it.
	content []v1.Descriptor
}

func (d destination) open(o options, p program, settings []remote.Option) (*pushed, error) {
	tag, err := name.NewTag(d.name(p.name), name.StrictValidation)
	if err != nil {
		return nil, err
	}
	all, err := layout.ImageIndexFromPath(filepath.Join(o.output, p.name, layoutFolder))
	if err != nil {
		return nil, fmt.Errorf("read the built images: %w", err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the built images: %w", err)
	}
	return &pushed{tag, settings, all, manifest.Manifests}, nil
}

// checkTag refuses to move a tag, because users who pin only the tag would get other programs under the same name.
func (p *pushed) checkTag(o options) error {
	there, err := remote.Get(p.tag, p.settings...)
	var answer *transport.Error
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return nil
	case err != nil:
		return p.explain(err)
	case there.Digest == p.content[0].Digest || o.overwrite:
		return nil
	}
	return fmt.Errorf("the tag exists with another digest: there %s, built %s; choose another VERSION, or move the tag "+
		"by OVERWRITE=1 (--overwrite)", there.Digest, p.content[0].Digest)
}

// push writes the tag last, so that it never names an image without its documents.
func (p *pushed) push(o options) error {
	var index v1.ImageIndex
	for i, described := range p.content {
		reference := p.tag.Digest(described.Digest.String())
		settings, done := p.follow(o.progress)
		var err error
		if i == 0 {
			if index, err = p.layout.ImageIndex(described.Digest); err == nil {
				err = remote.WriteIndex(reference, index, settings...)
			}
		} else {
			var artifact v1.Image
			if artifact, err = p.layout.Image(described.Digest); err == nil {
				err = remote.Write(reference, artifact, settings...)
			}
		}
		done()
		if err != nil {
			return p.explain(err)
		}
	}
	if err := remote.Tag(p.tag, index, p.settings...); err != nil {
		return p.explain(err)
	}
	return nil
}

// follow reports the progress of an upload, with a line for every five megabytes. done waits for the last one.
func (p *pushed) follow(progress io.Writer) (settings []remote.Option, done func()) {
	const step = 5e6
	updates, stop, ended := make(chan v1.Update, 64), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		next := int64(step)
		for {
			select {
			case update, more := <-updates:
				if !more {
					return
				}
				if update.Complete >= next {
					fmt.Fprintf(progress, "pushing %s: %s of %s\n", p.tag, megabytes(update.Complete), megabytes(update.Total))
					next = update.Complete + step
				}
			case <-stop:
				return
			}
		}
	}()
	settings = append(slices.Clone(p.settings), remote.WithProgress(updates))
	return settings, func() { close(stop); <-ended }
}

// explain adds the next step for the user to an error of a registry.
func (p *pushed) explain(err error) error {
	registry := p.tag.RegistryStr()
	var answer *transport.Error
	var network net.Error
	var authority x509.UnknownAuthorityError
	next := ""
	switch {
	case errors.As(err, &answer):
		switch status := answer.StatusCode; {
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			next = "log in by \"docker login " + registry + "\" with an account that may push there"
		case status == http.StatusNotFound:
			next = "create the repository " + p.tag.RepositoryStr() + ", if the registry does not do so by itself"
		case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
			next = "the registry is at fault or busy: repeat it later; uploaded blobs are not sent again"
		default:
			next = "the registry refuses it: ask its operator"
		}
	case errors.As(err, &authority):
		next = "if the registry has an authority of its own, name its certificate by SSL_CERT_FILE"
	case errors.As(err, &network):
		next = "check that " + registry + " is the right name, and that it answers: curl https://" + registry + "/v2/"
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, next)
}
