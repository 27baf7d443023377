// Package certs rotates the certificate of the webhooks: it issues one, stores it in a Secret that all
// replicas share, writes its authority into the caBundle of the webhook configurations, and replaces it
// before it expires without a failed request.
package certs
