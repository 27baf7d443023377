package leadership

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// identitySeparator ends the host name in an identity. No host name contains this character.
const identitySeparator = "_"

// NewIdentity returns the identity of one process in an election, in the form of Kubernetes' own components. The host
// name alone would not distinguish two processes of one host, and pods with the host's network have the host's name.
func NewIdentity(host string) string { return host + identitySeparator + string(uuid.NewUUID()) }

// HostOf returns the host name in an identity, which is the pod's name unless the pod has the host's network. An
// identity that is only a host name, such as a stock sidecar's, is returned unchanged.
func HostOf(identity string) string {
	host, _, _ := strings.Cut(identity, identitySeparator)
	return host
}
