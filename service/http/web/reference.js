// The API by Swagger UI: search by tag, try it with the session's cookie or with a key, which the page forgets when it is left.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "none",
  filter: true,
  presets: [SwaggerUIBundle.presets.apis],
});
