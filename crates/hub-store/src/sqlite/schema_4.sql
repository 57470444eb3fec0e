-- Authentication code of the document. Documents without a code get one when the hub starts.
ALTER TABLE documents ADD COLUMN code BLOB;
