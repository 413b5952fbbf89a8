"""The inbound wire: one API, one file. A handler is a plain function that returns an answer or a Pending."""
