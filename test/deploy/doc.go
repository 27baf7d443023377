// Package deploy tests the operators' files (deploy/) against a real API server: the API server accepts them unchanged,
// they grant no more than they say, and their pods run under the strictest Pod Security.
package deploy
