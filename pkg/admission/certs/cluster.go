package certs

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// cluster has the API calls of a Rotator. A write to an object that has changed since it was read returns
// kube.ErrChanged.
type cluster interface {
	// read reads the webhook configurations, and after them the Secret, so that a bundle is never newer than the Secret.
	read(ctx context.Context) (clusterState, error)
	// writeSecret writes the Secret if it still has this version; without a version, it creates the Secret.
	writeSecret(ctx context.Context, data map[string][]byte, version string) error
	// writeBundle writes the bundle into all webhooks of a configuration that has not changed since it was read.
	writeBundle(ctx context.Context, h webhookConfig, bundle []byte) error
}

// clusterState is the state read from the API server.
type clusterState struct {
	configs []webhookConfig
	secret  map[string][]byte
	// version is empty if the Secret does not exist.
	version string
}

// webhookConfig is a webhook configuration, with the bundle of each webhook by its name.
type webhookConfig struct {
	mutating      bool
	name, version string
	bundles       map[string][]byte
}

type apiServer struct {
	cfg     Config
	clients kube.Clients
}

func (a apiServer) read(ctx context.Context) (clusterState, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var seen clusterState
	for _, name := range a.cfg.Webhooks {
		for _, read := range []func(context.Context, string) (webhookConfig, error){a.mutating, a.validating} {
			h, err := read(ctx, name)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return clusterState{}, fmt.Errorf("read webhook configuration %q: %w", name, err)
			default:
				seen.configs = append(seen.configs, h)
			}
		}
	}
	secret, err := a.clients.Core.Secrets(a.cfg.Namespace).Get(kube.WithoutLog(ctx), a.cfg.Secret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return seen, nil
	case err != nil:
		return clusterState{}, fmt.Errorf("read Secret %s/%s: %w", a.cfg.Namespace, a.cfg.Secret, err)
	}
	seen.secret, seen.version = secret.Data, secret.ResourceVersion
	return seen, nil
}

func (a apiServer) mutating(ctx context.Context, name string) (webhookConfig, error) {
	o, err := a.clients.Admission.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return webhookConfig{}, err
	}
	h := webhookConfig{mutating: true, name: name, version: o.ResourceVersion, bundles: map[string][]byte{}}
	for i := range o.Webhooks {
		h.bundles[o.Webhooks[i].Name] = o.Webhooks[i].ClientConfig.CABundle
	}
	return h, nil
}

func (a apiServer) validating(ctx context.Context, name string) (webhookConfig, error) {
	o, err := a.clients.Admission.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return webhookConfig{}, err
	}
	h := webhookConfig{name: name, version: o.ResourceVersion, bundles: map[string][]byte{}}
	for i := range o.Webhooks {
		h.bundles[o.Webhooks[i].Name] = o.Webhooks[i].ClientConfig.CABundle
	}
	return h, nil
}

func (a apiServer) writeSecret(ctx context.Context, data map[string][]byte, version string) error {
	ctx, cancel := context.WithTimeout(kube.WithoutLog(ctx), kube.Timeout)
	defer cancel()
	secrets := a.clients.Core.Secrets(a.cfg.Namespace)
	what := fmt.Sprintf("write Secret %s/%s", a.cfg.Namespace, a.cfg.Secret)
	if version == "" {
		_, err := secrets.Create(ctx, &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.cfg.Namespace, Name: a.cfg.Secret}, Type: v1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
		return classify(what, err)
	}
	patch, err := secretPatch(data, version)
	if err != nil {
		return err
	}
	_, err = secrets.Patch(ctx, a.cfg.Secret, types.MergePatchType, patch, metav1.PatchOptions{})
	return classify(what, err)
}

// secretPatch leaves everything else unchanged: labels, annotations, other keys.
func secretPatch(data map[string][]byte, version string) ([]byte, error) {
	all := map[string]any{}
	for _, key := range []string{keyCert, keyKey, keyNextCert, keyNextKey, keyOldCAs} {
		all[key] = data[key] // a missing value becomes null, which removes the key
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": version}, "data": all})
	if err != nil {
		return nil, fmt.Errorf("write the patch of a Secret: %w", err)
	}
	return patch, nil
}

func (a apiServer) writeBundle(ctx context.Context, h webhookConfig, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	patch, err := bundlePatch(h, bundle)
	if err != nil {
		return err
	}
	if h.mutating {
		_, err = a.clients.Admission.MutatingWebhookConfigurations().Patch(ctx, h.name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{})
	} else {
		_, err = a.clients.Admission.ValidatingWebhookConfigurations().Patch(ctx, h.name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{})
	}
	return classify(fmt.Sprintf("patch webhook configuration %q", h.name), err)
}

// bundlePatch leaves everything but the bundles unchanged, because webhooks are merged by their names.
func bundlePatch(h webhookConfig, bundle []byte) ([]byte, error) {
	var all []any
	for name := range h.bundles {
		all = append(all, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": h.version},
		"webhooks": all})
	if err != nil {
		return nil, fmt.Errorf("write the patch of webhook configuration %q: %w", h.name, err)
	}
	return patch, nil
}

// classify wraps kube.ErrChanged if a write lost to another.
func classify(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, kube.ErrChanged, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Permissions returns the permissions that a Rotator with these settings needs: each on one object by its name, except
// create, which a rule cannot restrict by name.
func (c Config) Permissions() []permission.Permission {
	const unserved = "there is no certificate, so the API server cannot call the webhooks"
	secret := func(verb, name string) permission.Permission {
		return permission.Permission{Resource: "secrets", Verb: verb, Namespace: c.Namespace, Name: name, Without: unserved}
	}
	permissions := []permission.Permission{secret("get", c.Secret)}
	if !c.External {
		permissions = append(permissions, secret("create", ""),
			permission.Permission{Resource: "secrets", Verb: "patch", Namespace: c.Namespace, Name: c.Secret,
				Without: "the webhooks' certificate is not rotated, and expires"})
	}
	for _, name := range c.Webhooks {
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			for _, verb := range []string{"get", "patch"} {
				permissions = append(permissions, permission.Permission{
					Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name,
					Without: fmt.Sprintf("the API server does not trust the certificate, so webhook configuration %q has no effect",
						name),
				})
			}
		}
	}
	return permissions
}
